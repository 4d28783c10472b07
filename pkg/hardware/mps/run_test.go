package mps

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/test/simulator/nvtools"
)

func TestRun(t *testing.T) {
	m := newMachine(t)
	dir := filepath.Join(m.root, "proc/driver/nvidia/gpus/0000:1b:00.0")
	require.NoError(t, os.MkdirAll(dir, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "information"), []byte("GPU UUID: \t "+uuidA+"\n"), 0o600))
	s := New(Config{DriverRoot: m.cfg.DriverRoot})

	out, err := s.Run(within(t), nvtools.SMIProgram, "compute-policy", "-i", uuidA, "--set-timeslice", "2")
	require.NoError(t, err, string(out))
	slice, err := nvtools.TimeSlice(m.root, uuidA)
	require.NoError(t, err)
	assert.Equal(t, "MEDIUM", slice)

	out, err = s.Run(within(t), nvtools.SMIProgram, "compute-policy", "-i", uuidB, "--set-timeslice", "2")
	assert.Error(t, err)
	assert.Contains(t, string(out), "No devices were found")

	// The host's own programs, where it keeps those for administrators.
	require.NoError(t, os.MkdirAll(filepath.Join(m.cfg.DriverRoot, "sbin"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(m.cfg.DriverRoot, "sbin/modprobe"), []byte("#!/bin/sh\necho \"$0 $@\"\n"), 0o755))
	out, err = s.Run(within(t), "modprobe", "-r", "amdgpu")
	require.NoError(t, err, string(out))
	assert.Equal(t, filepath.Join(m.cfg.DriverRoot, "sbin/modprobe")+" -r amdgpu\n", string(out))
	out, err = s.Run(within(t), "no-such-modprobe")
	assert.Error(t, err)
	assert.Contains(t, string(out), "the host has no no-such-modprobe")

	out, err = s.Run(within(t), "nvidia-other")
	assert.Error(t, err)
	assert.Contains(t, string(out), filepath.Join(m.cfg.DriverRoot, "usr/bin/nvidia-other"), "where it was looked for")
}

// TestDriverRootOfItsOwn: a whole system below a folder, as a driver that is
// installed by a container, runs with its own libraries and its own names of files.
func TestDriverRootOfItsOwn(t *testing.T) {
	m := newMachine(t)
	for _, dir := range []string{"lib64", "mnt", "dev/shm", "proc"} {
		require.NoError(t, os.MkdirAll(filepath.Join(m.cfg.DriverRoot, dir), 0o755))
	}
	require.NoError(t, os.WriteFile(filepath.Join(m.cfg.DriverRoot, loaders[0]), nil, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(m.cfg.DriverRoot, "dev/null"), nil, 0o644))
	s := m.supervisor()
	spec := twoGPUs()
	m.start(s, spec)
	assert.Equal(t, "3G", m.tell(s, spec.ID, "get_default_device_pinned_mem_limit 0"), "clients elsewhere find it")
	assert.Equal(t, m.cfg.DriverRoot, readlink(t, m.procOf(s, spec.ID)+"/root"))
	require.NoError(t, s.Stop(within(t), spec.ID))
	assert.Empty(t, entries(t, filepath.Join(m.cfg.DriverRoot, "mnt")), "nothing is left in the driver's root")
}

// TestHostNamespaces: a plugin in namespaces of its own starts a daemon that is in
// those of process 1, which on a node is the host's.
func TestHostNamespaces(t *testing.T) {
	m := newMachine(t)
	order, err := json.Marshal(m.cfg)
	require.NoError(t, err)
	inside := exec.CommandContext(within(t), "unshare", "--pid", "--fork", "--kill-child", "--mount-proc", os.Args[0], asHost, string(order))
	out, err := inside.CombinedOutput()
	require.NoError(t, err, string(out))
}

// hostWith is process 1 of a machine: it runs a plugin in a pod.
func hostWith(order string) int {
	plugin := exec.Command("unshare", "--net", "--uts", "--ipc", "--mount", os.Args[0], asPlugin, order)
	plugin.Stdout, plugin.Stderr = os.Stdout, os.Stderr
	if err := plugin.Run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// pluginWith checks what becomes of a daemon that is started from a pod.
func pluginWith(order string) int {
	if err := startFromPod(order); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func startFromPod(order string) error {
	var cfg Config
	if err := json.Unmarshal([]byte(order), &cfg); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	// A container sees the host's root by another name than the host does.
	cfg.HostRoot = "/proc/1/root/"
	s := New(cfg)
	if err := errors.Join(s.Start(ctx, twoGPUs()), s.Wait(ctx, twoGPUs().ID)); err != nil {
		return err
	}
	daemon, _, err := s.folder(twoGPUs().ID).process()
	if err != nil {
		return err
	}
	for _, name := range []string{"net", "ipc", "uts"} {
		host, _ := os.Readlink("/proc/1/ns/" + name)
		own, _ := os.Readlink("/proc/self/ns/" + name)
		its, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", daemon.PID, name))
		if err != nil || its != host || its == own {
			return fmt.Errorf("the daemon's %s namespace is %s, the host's %s, the plugin's %s: %w", name, its, host, own, err)
		}
	}
	if err := checkMounts("1", s.ShmDir(twoGPUs().ID), true); err != nil {
		return err
	}
	if err := checkMounts("self", s.ShmDir(twoGPUs().ID), false); err != nil {
		return fmt.Errorf("a plugin without mount propagation: %w", err)
	}
	if err := s.Stop(ctx, twoGPUs().ID); err != nil {
		return err
	}
	if err := checkMounts("1", s.ShmDir(twoGPUs().ID), false); err != nil {
		return err
	}
	cfg.HostRoot = cfg.Dir
	if err := New(cfg).Probe(ctx); err == nil || !strings.Contains(err.Error(), "hostPID") {
		return fmt.Errorf("where process 1 is not the host's, MPS is tried with: %w", err)
	}
	return nil
}

// checkMounts checks whether a process sees a mount.
func checkMounts(process, path string, want bool) error {
	content, err := os.ReadFile("/proc/" + process + "/mountinfo")
	if err == nil && strings.Contains(string(content), " "+path+" ") != want {
		err = fmt.Errorf("process %s sees the mount %s: %t, want %t", process, path, !want, want)
	}
	return err
}
