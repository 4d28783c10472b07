package mps

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/test/simulator/nvtools"
)

const (
	uuidA = "GPU-aaaaaaaa-0000-0000-0000-000000000000"
	uuidB = "GPU-bbbbbbbb-0000-0000-0000-000000000000"
)

func twoGPUs() Spec {
	return Spec{
		ID:      "0f8b5d2e-6c1a-4b61-9a6f-2f2f0c9d1e11",
		Devices: []Device{{UUID: uuidA, MemoryLimit: 3 << 30}, {UUID: uuidB, MemoryLimit: 1408 << 20}}, ThreadPercentage: 25,
	}
}

func TestDaemonHasItsLimitsWhenItIsReady(t *testing.T) {
	m := newMachine(t)
	s := m.supervisor()
	spec := twoGPUs()
	m.start(s, spec)

	assert.Equal(t, Status{Ready: true}, s.Status(spec.ID))
	assert.Equal(t, "3G", m.tell(s, spec.ID, "get_default_device_pinned_mem_limit 0"))
	assert.Equal(t, "1G", m.tell(s, spec.ID, "get_default_device_pinned_mem_limit 1"))
	assert.Equal(t, "25.0", m.tell(s, spec.ID, "get_default_active_thread_percentage"))

	env, err := os.ReadFile("/proc/" + strconv.Itoa(m.process(s, spec.ID).PID) + "/environ")
	require.NoError(t, err)
	assert.Contains(t, string(env), "CUDA_VISIBLE_DEVICES="+uuidA+","+uuidB+"\x00", "the order makes the ordinals")

	ids, err := s.List()
	require.NoError(t, err)
	assert.Equal(t, []string{spec.ID}, ids)

	daemon := m.process(s, spec.ID)
	require.NoError(t, s.Stop(within(t), spec.ID))
	assert.True(t, daemon.hasEnded())
	assert.Equal(t, Status{Gone: true}, s.Status(spec.ID))
	assert.NoDirExists(t, filepath.Join(m.cfg.Dir, spec.ID))
	require.NoError(t, s.Stop(within(t), spec.ID), "a second time")
	assert.ErrorIs(t, s.Wait(within(t), spec.ID), errNoDaemon)
}

func TestDaemonOfOneGPUSeesItAlone(t *testing.T) {
	m := newMachine(t)
	s := m.supervisor()
	m.start(s, Spec{ID: "gpu", Devices: []Device{{UUID: uuidA}}, ThreadPercentage: 1})
	assert.Equal(t, "1.0", m.tell(s, "gpu", "get_default_active_thread_percentage"))
	env, err := os.ReadFile("/proc/" + strconv.Itoa(m.process(s, "gpu").PID) + "/environ")
	require.NoError(t, err)
	assert.Contains(t, string(env), "CUDA_VISIBLE_DEVICES="+uuidA+"\x00")
	require.NoError(t, s.Stop(within(t), "gpu"))
}

// TestDaemonIsOutsideThePlugin: what it holds of the plugin's would keep the plugin's
// container from going away.
func TestDaemonIsOutsideThePlugin(t *testing.T) {
	m := newMachine(t)
	s := m.supervisor()
	m.start(s, Spec{ID: "gpu"})
	proc := m.procOf(s, "gpu")

	assert.NotEqual(t, readlink(t, "/proc/self/ns/mnt"), readlink(t, proc+"/ns/mnt"))
	assert.Equal(t, "/", readlink(t, proc+"/cwd"))
	assert.Equal(t, "/dev/null", readlink(t, proc+"/fd/0"))
	assert.Equal(t, filepath.Join(m.cfg.Dir, "gpu", launchLog), readlink(t, proc+"/fd/1"))
	mine, err := os.Stat(s.ShmDir("gpu"))
	require.NoError(t, err)
	its, err := os.Stat(proc + "/root/dev/shm")
	require.NoError(t, err)
	assert.True(t, os.SameFile(mine, its), "its /dev/shm is what its clients get")
	stat, err := statOf(m.process(s, "gpu").PID)
	require.NoError(t, err)
	assert.Equal(t, m.process(s, "gpu").PID, stat.PGRP, "signals to the plugin's group are not for it")
}

func (m *machine) procOf(s *Supervisor, id string) string {
	return "/proc/" + strconv.Itoa(m.process(s, id).PID)
}

func readlink(t *testing.T, path string) string {
	t.Helper()
	target, err := os.Readlink(path)
	require.NoError(t, err)
	return target
}

func TestStartIsIdempotent(t *testing.T) {
	m := newMachine(t)
	m.faults("startDelay: 200ms")
	s, other := m.supervisor(), m.supervisor()
	spec := twoGPUs()
	errs := make(chan error)
	for range 3 {
		for _, s := range []*Supervisor{s, other} {
			go func() { errs <- s.Start(context.Background(), spec) }()
		}
	}
	for range 6 {
		require.NoError(t, <-errs)
	}
	assert.False(t, s.Status(spec.ID).Ready, "it does not wait")
	require.NoError(t, s.Wait(within(t), spec.ID))
	require.NoError(t, other.Wait(within(t), spec.ID))
	// One of them may still be asking the daemon, by the same program in the same place.
	s.awaitIdle(t, spec.ID)
	other.awaitIdle(t, spec.ID)
	assert.Equal(t, 1, daemonsOf(t, s.PipeDir(spec.ID)), "however often and by whomever it is started")

	before := m.process(s, spec.ID)
	m.start(s, spec)
	assert.Equal(t, before, m.process(s, spec.ID))
}

// awaitIdle waits until a supervisor is done with bringing a daemon to readiness.
func (s *Supervisor) awaitIdle(t *testing.T, id string) {
	t.Helper()
	require.Eventually(t, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return !s.isSettling(s.folder(id))
	}, time.Minute, 10*time.Millisecond)
}

// daemonsOf counts processes by the pipe folder in their environment.
func daemonsOf(t *testing.T, pipe string) int {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/environ")
	require.NoError(t, err)
	count := 0
	for _, file := range files {
		env, _ := os.ReadFile(file)
		if strings.Contains(string(env), "CUDA_MPS_PIPE_DIRECTORY="+pipe+"\x00") {
			count++
		}
	}
	return count
}

func TestAnotherSpecIsRefused(t *testing.T) {
	m := newMachine(t)
	s := m.supervisor()
	spec := twoGPUs()
	m.start(s, spec)
	memory, percentage := twoGPUs(), twoGPUs()
	memory.Devices[0].MemoryLimit = 4 << 30
	percentage.ThreadPercentage = 0
	for _, other := range []Spec{memory, percentage} {
		err := s.Start(within(t), other)
		require.ErrorIs(t, err, ErrOtherSpec)
		assert.ErrorContains(t, err, spec.ID)
	}
	assert.True(t, s.Status(spec.ID).Ready, "the old one goes on")
}

func TestStopWithClientsAttached(t *testing.T) {
	m := newMachine(t)
	s := m.supervisor()
	m.start(s, Spec{ID: "gpu"})
	client, err := nvtools.Attach(s.PipeDir("gpu"))
	require.NoError(t, err)
	defer client.Close()
	serverPID, err := strconv.Atoi(m.tell(s, "gpu", "get_server_list"))
	require.NoError(t, err)
	server, err := identify(serverPID)
	require.NoError(t, err)
	daemon := m.process(s, "gpu")

	// By another plugin than the one that started it.
	require.NoError(t, m.supervisor().Stop(within(t), "gpu"))
	assert.True(t, daemon.hasEnded())
	require.NoError(t, awaitEnd(within(t), server))
	assert.NoDirExists(t, string(s.folder("gpu")))
}

func TestWaitEndsWithItsContext(t *testing.T) {
	m := newMachine(t)
	m.faults("start: hang")
	s := m.supervisor()
	require.NoError(t, s.Start(within(t), Spec{ID: "gpu"}))
	ctx, cancel := context.WithCancelCause(context.Background())
	enough := errors.New("enough")
	cancel(enough)
	assert.ErrorIs(t, s.Wait(ctx, "gpu"), enough)
}

func TestStopWhileItStarts(t *testing.T) {
	m := newMachine(t)
	m.faults("startDelay: 10m")
	s := m.supervisor()
	require.NoError(t, s.Start(within(t), Spec{ID: "gpu"}))
	require.NoError(t, s.Stop(within(t), "gpu"))
	assert.Equal(t, Status{Gone: true}, s.Status("gpu"))
	require.Eventually(t, func() bool { return daemonsOf(t, s.PipeDir("gpu")) == 0 }, time.Minute, 10*time.Millisecond)
}

func TestNamesAndSpecsAreChecked(t *testing.T) {
	s := New(Config{Dir: filepath.Join(t.TempDir(), "nowhere")})
	long := New(Config{Dir: filepath.Join(t.TempDir(), strings.Repeat("x", 60))})
	uid := "0f8b5d2e-6c1a-4b61-9a6f-2f2f0c9d1e11"
	for what, test := range map[string]struct {
		s    *Supervisor
		spec Spec
		want string
	}{
		"no name":          {s, Spec{}, "cannot name"},
		"a way out":        {s, Spec{ID: "../x"}, "cannot name"},
		"a folder":         {s, Spec{ID: "a/b"}, "cannot name"},
		"hidden":           {s, Spec{ID: ".probe-1"}, "cannot name"},
		"too long a path":  {long, Spec{ID: uid}, "107"},
		"no UUID":          {s, Spec{ID: "gpu", Devices: []Device{{}}}, "no UUID"},
		"negative limit":   {s, Spec{ID: "gpu", Devices: []Device{{UUID: uuidA, MemoryLimit: -1}}}, uuidA},
		"limit of nothing": {s, Spec{ID: "gpu", Devices: []Device{{UUID: uuidA, MemoryLimit: 1000}}}, "1 MiB"},
		"percentage":       {s, Spec{ID: "gpu", ThreadPercentage: 101}, "101"},
		"below zero":       {s, Spec{ID: "gpu", ThreadPercentage: -1}, "-1"},
	} {
		t.Run(what, func(t *testing.T) {
			require.ErrorContains(t, test.s.Start(context.Background(), test.spec), test.want)
		})
	}
	assert.NoError(t, checkID("/run/tranche/mps", uid), "the folder and the longest names that there are")
	assert.Error(t, s.Stop(context.Background(), "a/../b"))
	assert.Error(t, s.Status("").Err)
	ids, err := s.List()
	require.NoError(t, err)
	assert.Empty(t, ids, "a folder that is not there yet")
}
