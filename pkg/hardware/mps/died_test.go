package mps

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/test/simulator/nvtools"
)

// TestPluginDiesWhileADaemonStarts: the next one finds it and makes it ready.
func TestPluginDiesWhileADaemonStarts(t *testing.T) {
	m := newMachine(t)
	m.faults("startDelay: 300ms")
	spec := twoGPUs()
	order, err := json.Marshal(map[string]any{"Config": m.cfg, "Spec": spec})
	require.NoError(t, err)
	out, err := exec.Command(os.Args[0], startAndDie, string(order)).CombinedOutput()
	require.NoError(t, err, string(out))

	s := m.supervisor()
	require.NoError(t, s.Start(within(t), spec))
	require.NoError(t, s.Wait(within(t), spec.ID))
	assert.Equal(t, "3G", m.tell(s, spec.ID, "get_default_device_pinned_mem_limit 0"))
	assert.Equal(t, 1, daemonsOf(t, s.PipeDir(spec.ID)))
}

// TestPluginDiesBetweenSteps: whatever of a daemon's folder there is, the next Start
// or Stop puts right.
func TestPluginDiesBetweenSteps(t *testing.T) {
	spec := Spec{ID: "gpu", Devices: []Device{{UUID: uuidA, MemoryLimit: 1 << 30}}}
	gone := Status{Gone: true}
	never := Status{Err: errors.New("MPS daemon gpu was never launched: whoever wanted to has ended")}
	for what, test := range map[string]struct {
		status Status
		leave  func(*testing.T, folder)
	}{
		"an empty folder": {gone, func(t *testing.T, f folder) { require.NoError(t, os.MkdirAll(string(f), 0o755)) }},
		"no spec":         {gone, func(t *testing.T, f folder) { require.NoError(t, f.make()) }},
		"a spec": {never, func(t *testing.T, f folder) {
			require.NoError(t, f.make())
			require.NoError(t, f.write("spec.json", spec))
		}},
		"a pid of nobody": {Status{Err: errors.New("MPS daemon gpu has ended: it wrote nothing")}, func(t *testing.T, f folder) {
			boot, err := bootID()
			require.NoError(t, err)
			leavePID(t, f, spec, process{PID: 1 << 21, Start: 1, Boot: boot})
		}},
		"a broken pid": {never, func(t *testing.T, f folder) {
			leavePID(t, f, spec, process{})
			require.NoError(t, os.WriteFile(f.path("pid"), []byte(`{"version":1,"pid`), 0o600))
		}},
		"an old readiness": {never, func(t *testing.T, f folder) {
			leavePID(t, f, spec, process{})
			require.NoError(t, f.write("ready", process{PID: 7, Start: 7}))
		}},
		"groups that were never made": {never, func(t *testing.T, f folder) {
			leavePID(t, f, spec, process{})
			require.NoError(t, f.write("cgroups", controlGroups{Groups: []string{filepath.Join(string(f), "no/such/group")}}))
		}},
	} {
		t.Run(what, func(t *testing.T) {
			m := newMachine(t)
			s := m.supervisor()
			test.leave(t, s.folder("gpu"))
			require.NoError(t, s.Stop(within(t), "gpu"))
			assert.NoDirExists(t, string(s.folder("gpu")))

			test.leave(t, s.folder("gpu"))
			assert.Equal(t, fmt.Sprint(test.status), fmt.Sprint(s.Status("gpu")))
			m.start(s, spec)
			assert.Equal(t, "1G", m.tell(s, "gpu", "get_default_device_pinned_mem_limit 0"))
		})
	}
}

func leavePID(t *testing.T, f folder, spec Spec, pid process) {
	t.Helper()
	require.NoError(t, f.make())
	require.NoError(t, f.write("spec.json", spec))
	require.NoError(t, f.write("pid", pid))
}

// TestUnreadablePID: while it is not known which process a daemon is, it may run, so nothing is
// started in its place, and nothing of it is removed.
func TestUnreadablePID(t *testing.T) {
	m := newMachine(t)
	s := m.supervisor()
	spec := Spec{ID: "gpu", Devices: []Device{{UUID: uuidA}}}
	m.start(s, spec)
	f := s.folder("gpu")
	daemon := m.process(s, "gpu")
	require.NoError(t, os.Rename(f.path("pid"), f.path("away")))
	require.NoError(t, os.Mkdir(f.path("pid"), 0o700)) // reading it fails, also for root
	unknown := "find out whether MPS daemon gpu runs"
	require.ErrorContains(t, s.Status("gpu").Err, unknown)
	require.ErrorContains(t, s.Start(within(t), spec), unknown)
	require.ErrorContains(t, s.Stop(within(t), "gpu"), unknown)
	require.DirExists(t, f.pipe())
	require.False(t, daemon.hasEnded())
	unlock, err := f.lock(within(t))
	require.NoError(t, err, "whoever comes next does not wait")
	unlock()

	require.NoError(t, os.Remove(f.path("pid")))
	require.NoError(t, os.Rename(f.path("away"), f.path("pid")))
	require.True(t, s.Status("gpu").Ready)
	require.NoError(t, s.Stop(within(t), "gpu"))
	require.True(t, daemon.hasEnded())
	require.NoDirExists(t, string(f))
}

// Only the errors of a process that has ended say so.
func TestOrDone(t *testing.T) {
	for _, err := range []error{syscall.ENOENT, syscall.ESRCH} {
		assert.ErrorIs(t, orDone(&os.PathError{Op: "read", Path: "/proc/7/stat", Err: err}), os.ErrProcessDone)
	}
	for _, err := range []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.EACCES, syscall.EIO} {
		assert.NotErrorIs(t, orDone(&os.PathError{Op: "open", Path: "/proc/7/stat", Err: err}), os.ErrProcessDone)
	}
	_, err := statOf(1 << 22) // above the kernel's largest number
	require.ErrorIs(t, err, os.ErrProcessDone)
	ended := exec.Command("true")
	require.NoError(t, ended.Run())
	require.True(t, process{PID: ended.Process.Pid, Start: 1, Boot: "another"}.hasEnded())
	cannotTell := func() (bool, error) { return false, syscall.EMFILE }
	require.ErrorIs(t, killIf(os.Getpid(), cannotTell), syscall.EMFILE, "whoever may be another is not ended")
}

// TestReusedPID: a process that has got the number of the daemon is neither taken for
// it nor ended.
func TestReusedPID(t *testing.T) {
	m := newMachine(t)
	s := m.supervisor()
	bystander := exec.Command("sleep", "1000")
	require.NoError(t, bystander.Start())
	t.Cleanup(func() { _ = bystander.Process.Kill(); _ = bystander.Wait() })
	real, err := identify(bystander.Process.Pid)
	require.NoError(t, err)
	for _, reused := range []process{
		{PID: real.PID, Start: real.Start - 1, Boot: real.Boot},
		{PID: real.PID, Start: real.Start, Boot: "another"},
	} {
		leavePID(t, s.folder("gpu"), Spec{ID: "gpu"}, reused)
		require.NoError(t, s.folder("gpu").write("ready", reused))
		assert.Error(t, s.Status("gpu").Err, "it has died")
		require.NoError(t, s.Stop(within(t), "gpu"))
		assert.False(t, real.hasEnded())
	}
}

// TestDaemonDies: with clients attached or without, the reason is told, its server
// is no more when it is started again, and clients find the new one at the same place.
func TestDaemonDies(t *testing.T) {
	m := newMachine(t)
	s := m.supervisor()
	spec := twoGPUs()
	m.start(s, spec)
	client, err := nvtools.Attach(s.PipeDir(spec.ID))
	require.NoError(t, err)
	defer client.Close()
	serverPID, err := strconv.Atoi(m.tell(s, spec.ID, "get_server_list"))
	require.NoError(t, err)
	server, err := identify(serverPID)
	require.NoError(t, err)
	pipe, err := os.Stat(s.PipeDir(spec.ID))
	require.NoError(t, err)

	m.kill(m.process(s, spec.ID))
	status := s.Status(spec.ID)
	assert.False(t, status.Ready)
	require.Error(t, status.Err)
	assert.ErrorContains(t, status.Err, "NEW CLIENT", "the end of its log")
	assert.False(t, server.hasEnded())

	require.NoError(t, s.Start(within(t), spec))
	require.NoError(t, s.Wait(within(t), spec.ID))
	require.NoError(t, awaitEnd(within(t), server))
	assert.Equal(t, "3G", m.tell(s, spec.ID, "get_default_device_pinned_mem_limit 0"))
	again, err := os.Stat(s.PipeDir(spec.ID))
	require.NoError(t, err)
	assert.True(t, os.SameFile(pipe, again), "containers have it mounted")
	require.NoError(t, s.Start(within(t), spec), "one that runs")
}

func TestDaemonThatDoesNotComeUp(t *testing.T) {
	for what, test := range map[string]struct {
		faults string
		want   string
	}{
		"fails":              {"start: fail", "simulated failure"},
		"hangs":              {"start: hang", "does not come up"},
		"does not obey":      {"ignoreLimits: true", "get_default_device_pinned_mem_limit 0, where 3072 was set"},
		"ignores percentage": {"ignoreLimits: true", "get_default_active_thread_percentage, where 25 was set"},
		"knows no multiuser": {"singleUser: true", "-multiuser-server"},
	} {
		t.Run(what, func(t *testing.T) {
			m := newMachine(t)
			patient := m.supervisor()
			s := patient
			if what == "hangs" {
				m.cfg.Stand = 2 * time.Second
				s = m.supervisor()
			}
			m.faults(test.faults, "startDelay: 0s")
			spec := twoGPUs()
			if what == "ignores percentage" {
				spec.Devices = nil
			}
			require.NoError(t, s.Start(within(t), spec))
			err := s.Wait(within(t), spec.ID)
			require.ErrorContains(t, err, test.want)
			assert.ErrorContains(t, err, spec.ID)
			assert.Equal(t, err, s.Status(spec.ID).Err, "it stays so")
			require.NoError(t, s.Stop(within(t), spec.ID))
			assert.Zero(t, daemonsOf(t, s.PipeDir(spec.ID)))

			m.faults("startDelay: 0s")
			m.start(patient, spec)
		})
	}
}
