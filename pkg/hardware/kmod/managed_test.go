package kmod

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/pkg/gpu"
)

// manager loads the module some time after it was asked.
type manager struct {
	host    *host
	manages bool
	err     error
	loadErr []error
	takes   time.Duration
	asked   int
	// never is how often it does nothing.
	never int
}

func (m *manager) Manages(context.Context) (bool, error) { return m.manages, m.err }

func (m *manager) Load(context.Context) error {
	m.asked++
	if len(m.loadErr) > 0 {
		err := m.loadErr[0]
		m.loadErr = m.loadErr[1:]
		return err
	}
	if m.asked > m.never {
		time.AfterFunc(m.takes, func() { m.host.set(live) })
	}
	return nil
}

// modprobe does not know a module that an operator has brought along.
func TestModuleThatModprobeDoesNotKnow(t *testing.T) {
	const unknown = "modprobe: something new"
	h, m := newHost(t)
	m.Manager = &manager{host: h, manages: true}
	m.LookPause = time.Millisecond
	h.answers[unloads] = []string{unknown, unknown, unknown}
	require.NoError(t, m.Reload(t.Context()))
	assert.Equal(t, []string{unloads, "rmmod amdgpu"}, h.said())

	h.users, h.answers["rmmod amdgpu"] = 1, []string{"rmmod: ERROR: Module amdgpu is in use"}
	require.ErrorIs(t, m.Reload(t.Context()), gpu.ErrInUse)
	assert.Equal(t, live, h.is())

	h.set(absent)
	h.calls = nil
	require.NoError(t, m.Reload(t.Context()), "a module that is not loaded need not be unloaded")
	assert.Equal(t, []string{unloads}, h.said())
	assert.Equal(t, live, h.is())

	m.Manager, h.calls = nil, nil
	h.answers[unloads] = []string{unknown}
	h.users = 0
	require.ErrorContains(t, m.Reload(t.Context()), unknown)
	assert.Equal(t, []string{unloads}, h.said(), "nothing could load it again")
}

func TestReloadOfAManagedModule(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, m := newHost(t)
		kmm := &manager{host: h, manages: true, takes: 58 * time.Second} // no multiple of the pause between two looks
		m.Manager = kmm
		require.NoError(t, m.Reload(t.Context()))
		assert.Equal(t, []string{unloads}, h.said(), "the manager loads it")
		assert.Equal(t, 1, kmm.asked)

		kmm.asked, kmm.never = 0, 1
		start := time.Now()
		require.NoError(t, m.Reload(t.Context()), "it is asked again")
		assert.Equal(t, 2, kmm.asked)
		assert.Equal(t, 5*time.Minute+5*time.Second+time.Minute, time.Since(start))

		kmm.asked, kmm.never = 0, 0
		kmm.loadErr = []error{errors.New("no API server"), errors.New("no API server")}
		require.NoError(t, m.Reload(t.Context()), "an API server that is away for a while")
		assert.Equal(t, 3, kmm.asked)

		kmm.asked, kmm.never = 0, 99
		err := m.Reload(t.Context())
		require.ErrorContains(t, err, "could not be loaded again in 3 tries: its manager did not load it within 5m0s")
		assert.FileExists(t, m.Marker)

		// A plugin that is killed now asks the manager again.
		kmm.never = 0
		again := *m
		require.NoError(t, again.Resume(t.Context()))
		assert.NotContains(t, h.said(), loads)
		assert.NoFileExists(t, m.Marker)

		kmm.asked = 0
		require.NoError(t, m.mark(true))
		require.NoError(t, m.Resume(t.Context()))
		assert.Zero(t, kmm.asked, "it is loaded already")
		assert.NoFileExists(t, m.Marker)

		kmm.loadErr = slices.Repeat([]error{errors.New("no API server")}, 999)
		require.ErrorContains(t, m.Reload(t.Context()), "no API server")
		kmm.loadErr = nil
		require.NoError(t, m.Resume(t.Context()))

		kmm.manages = false
		require.NoError(t, m.Reload(t.Context()))
		assert.Contains(t, h.said(), loads, "nothing else manages it any more")
	})
}
