package partition

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/durable"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/profile"
)

// What profiles have made goes; what claims hold, what others made, and the modes stay.
func TestClear(t *testing.T) {
	p := newPlace(t, hopper, other, ampere, mi300)
	p.hardware.gpu(ampere).resets = true
	n := p.start()
	require.NoError(t, n.Clear(t.Context()), "there is nothing yet")
	assert.NoFileExists(t, p.file)

	p.follow(n, p.profile("cut", map[string]profile.Layout{
		hopper: static(ones(hopper, 0, 6)...), other: static(ones(other, 0, 1, 2)...), ampere: static(ones(ampere, 3)...), mi300: {Compute: "QPX", Memory: "NPS4"},
	}))
	p.hardware.gpu(hopper).live = append(p.hardware.gpu(hopper).live, partitionAt(ones(hopper, 3)[0]))
	p.claims.hold("kept", ones(other, 1)...)
	p.hardware.calls = nil
	require.NoError(t, n.Clear(t.Context()))
	want := []string{"gpu-0000-01-00-0 on 1g.10gb_3", "gpu-0000-02-00-0 on 1g.10gb_1", "gpu-0000-03-00-0 on", "gpu-0000-81-00-0 QPX NPS4"}
	assert.Equal(t, want, p.hardware.state())
	for _, call := range p.hardware.calls {
		assert.True(t, strings.HasPrefix(call, "destroy "), call)
	}
	assert.Empty(t, n.Applied().Hash)
	assert.Nil(t, n.journal().Applying)
	assert.False(t, n.Static(ones(other, 1)[0]), "it goes with its claim")

	p.hardware.calls = nil
	require.NoError(t, n.Clear(t.Context()))
	require.NoError(t, p.start().Clear(t.Context()))
	assert.Empty(t, p.hardware.calls)

	// It can be gone on with: nothing that was done is taken for done.
	p.claims.release("kept")
	p.hardware.gpu(hopper).live = nil
	p.hardware.gpu(other).live = nil
	p.follow(n, wish("cut"))
}

// Of a switch that failed halfway, what was made goes, too; nothing is put back that
// takes a reset, or a load of the driver.
func TestClearAfterAFailure(t *testing.T) {
	p := newPlace(t, hopper, ampere, mi300)
	p.hardware.gpu(ampere).resets = true
	n := p.start()
	p.follow(n, p.profile("from", map[string]profile.Layout{hopper: static(ones(hopper, 0)...)}))
	p.hardware.before = failing("create " + ones(hopper, 6)[0].Name())
	to := p.profile("to", map[string]profile.Layout{hopper: static(ones(hopper, 5, 6)...), ampere: static(ones(ampere, 0)...), mi300: {Compute: "QPX", Memory: "NPS4"}})
	require.Equal(t, v1beta1.TaskFailed, n.Apply(t.Context(), to, false).Phase)
	before := p.hardware.state()
	require.Equal(t, []string{"gpu-0000-01-00-0 on 1g.10gb_5", "gpu-0000-03-00-0 on 1g.10gb_0", "gpu-0000-81-00-0 QPX NPS4"}, before)
	p.hardware.before, p.hardware.calls = nil, nil
	require.NoError(t, n.Clear(t.Context()))
	assert.Equal(t, []string{"gpu-0000-01-00-0 on", "gpu-0000-03-00-0 on", "gpu-0000-81-00-0 QPX NPS4"}, p.hardware.state())
}

// A GPU that does not answer keeps nobody from leaving; a partition that cannot be
// removed does, and is named.
func TestClearThatFails(t *testing.T) {
	p, n := startPlace(t, hopper, other)
	p.follow(n, p.profile("cut", map[string]profile.Layout{hopper: static(ones(hopper, 0)...), other: static(ones(other, 0)...)}))
	p.hardware.onModes = failing(hopper)
	p.hardware.before = func(call string) error { return fmt.Errorf("%w: process 12", gpu.ErrInUse) }
	err := n.Clear(t.Context())
	require.ErrorContains(t, err, "process 12")
	require.ErrorContains(t, err, ones(other, 0)[0].Name())
	assert.NotContains(t, err.Error(), "scripted")
	p.hardware.before = nil
	require.NoError(t, n.Clear(t.Context()))
	assert.Equal(t, []string{"gpu-0000-01-00-0 on 1g.10gb_0", "gpu-0000-02-00-0 on"}, p.hardware.state())
}

// After a rollback, what a newer version has made does not stay behind silently.
func TestClearBesideANewerJournal(t *testing.T) {
	p, n := startPlace(t, hopper)
	p.follow(n, p.profile("cut", map[string]profile.Layout{hopper: static(ones(hopper, 0)...)}))
	require.NoError(t, os.WriteFile(p.file, []byte(`{"version": 9, "minReader": 9}`), 0o600))
	before := p.hardware.state()
	later, err := p.open()
	require.Error(t, err)
	for _, n := range []*Node{n, later} {
		err := n.Clear(t.Context())
		require.ErrorAs(t, err, new(*durable.NewerError))
		require.ErrorContains(t, err, p.file)
		require.ErrorContains(t, err, "run the newer version of Tranche on this node again")
	}
	assert.Equal(t, before, p.hardware.state())
}

// The driver dies at each point of it in turn, and the next one finishes.
func TestCrashDuringClear(t *testing.T) {
	died := true
	for i := 0; died; i++ {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			p := newPlace(t, hopper, other)
			p.follow(p.start(), p.profile("cut", map[string]profile.Layout{hopper: static(ones(hopper, 0, 6)...), other: static(ones(other, 0)...)}))
			died = p.killed(i, func(n *Node) { _ = n.Clear(t.Context()) })
			n := p.start()
			require.NoError(t, n.Clear(t.Context()))
			assert.Equal(t, []string{"gpu-0000-01-00-0 on", "gpu-0000-02-00-0 on"}, p.hardware.state())
			assert.Empty(t, n.Applied().Hash)
			assert.Nil(t, n.journal().Applying)
		})
		require.Less(t, i, 50)
	}
}
