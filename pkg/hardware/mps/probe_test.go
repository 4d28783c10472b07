package mps

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/test/simulator/nvtools"
)

func TestProbe(t *testing.T) {
	m := newMachine(t)
	s := m.supervisor()
	require.NoError(t, s.Probe(within(t)))
	assert.Empty(t, entries(t, m.cfg.Dir), "it leaves nothing")

	t.Run("without programs", func(t *testing.T) {
		require.NoError(t, os.Remove(filepath.Join(m.root, nvtools.DriverBin, nvtools.ControlProgram)))
		err := s.Probe(within(t))
		require.ErrorIs(t, err, errNoProgram)
		assert.ErrorContains(t, err, filepath.Join(m.cfg.DriverRoot, "usr/bin", nvtools.ControlProgram))
		assert.ErrorContains(t, err, "install")
		assert.Empty(t, entries(t, m.cfg.Dir))
		m.install(nvtools.ControlProgram)
	})
	t.Run("hangs", func(t *testing.T) {
		m.faults("start: hang")
		cfg := m.cfg
		cfg.Stand = time.Second
		require.ErrorContains(t, New(cfg).Probe(within(t)), "does not come up")
		assert.Empty(t, entries(t, m.cfg.Dir))
	})
	t.Run("fails", func(t *testing.T) {
		m.faults("start: fail")
		require.ErrorContains(t, s.Probe(within(t)), "simulated failure")
		m.faults("startDelay: 0s")
		m.start(s, Spec{ID: "gpu"})
		options, err := os.ReadFile(m.procOf(s, "gpu") + "/cmdline")
		require.NoError(t, err)
		assert.Equal(t, "nvidia-cuda-mps-control\x00-f\x00-multiuser-server\x00", string(options), "it has told of none that it lacks")
		require.NoError(t, s.Stop(within(t), "gpu"))
	})
	t.Run("an older daemon", func(t *testing.T) {
		m.faults("singleUser: true", "startDelay: 0s")
		require.NoError(t, s.Probe(within(t)))
		m.start(s, Spec{ID: "gpu"})
	})
}

// TestProbeSweeps: what a plugin left that died while it tried is removed, and what
// another tries now stays.
func TestProbeSweeps(t *testing.T) {
	m := newMachine(t)
	s := m.supervisor()
	bystander := exec.Command("sleep", "1000")
	require.NoError(t, bystander.Start())
	t.Cleanup(func() { _ = bystander.Process.Kill(); _ = bystander.Wait() })
	living, err := identify(bystander.Process.Pid)
	require.NoError(t, err)
	stays := probePrefix + strconv.Itoa(living.PID) + "-" + strconv.FormatUint(living.Start, 10)
	goes := probePrefix + strconv.Itoa(living.PID) + "-1"
	for _, id := range []string{stays, goes, gonePrefix + "1"} {
		require.NoError(t, s.folder(id).make())
	}
	require.NoError(t, s.Probe(within(t)))
	assert.Equal(t, []string{stays}, entries(t, m.cfg.Dir))
	ids, err := s.List()
	require.NoError(t, err)
	assert.Empty(t, ids)
}

func entries(t *testing.T, dir string) []string {
	t.Helper()
	list, err := os.ReadDir(dir)
	require.NoError(t, err)
	var names []string
	for _, e := range list {
		names = append(names, e.Name())
	}
	return names
}
