package partition

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/profile"
)

func TestMemoryModeComesFirst(t *testing.T) {
	p := newPlace(t, hopper, mi300, mi300b, mi210)
	w := p.profile("qpx-nps4", map[string]profile.Layout{mi300: {Compute: "QPX", Memory: "NPS4"}, hopper: off})
	n := p.start()
	p.follow(n, w)
	assert.Equal(t, []string{"memory amd NPS4", "compute gpu-0000-81-00-0 QPX"}, p.hardware.calls)
	assert.Equal(t, []string{"gpu-0000-01-00-0 off", "gpu-0000-81-00-0 QPX NPS4", "gpu-0000-82-00-0 CPX NPS4", "gpu-0000-83-00-0"}, p.hardware.state())
	for _, gpuID := range []string{mi300, mi300b, mi210} {
		_, locked := p.claims.why.Load(gpuID)
		assert.True(t, locked, "every GPU of the vendor is its own meanwhile")
	}
	_, locked := p.claims.why.Load(hopper)
	assert.True(t, locked, "what is static on a GPU changes under its lock, too")

	p.hardware.calls = nil
	p.follow(n, p.profile("spx-nps1", map[string]profile.Layout{mi300: {Compute: "SPX", Memory: "NPS1"}, mi300b: {Compute: "DPX", Memory: "NPS1"}}))
	assert.Equal(t, []string{"memory amd NPS1", "compute gpu-0000-82-00-0 DPX"}, p.hardware.calls, "the driver has chosen SPX itself")
}

func TestMemoryModeThatIsLost(t *testing.T) {
	p := newPlace(t, mi300, mi300b)
	w := p.profile("cpx-nps4", map[string]profile.Layout{mi300: {Compute: "CPX", Memory: "NPS4"}})
	n := p.start()
	p.hardware.loses = true
	task := n.Apply(t.Context(), w, false)
	assert.Equal(t, v1beta1.Task{
		Phase: v1beta1.TaskFailed, Reason: names.ReasonHardwareFailed,
		Message: "put the AMD GPUs into memory mode NPS4: the driver came up in the mode before",
	}, task)
	require.NotNil(t, n.journal().Applying)
	p.follow(n, p.profile("none", nil))

	// A hardware that says nothing is not believed.
	p.hardware.loses = false
	p.hardware.after = func(string) error { p.hardware.gpu(mi300b).setMemory("NPS1"); return nil }
	task = n.Apply(t.Context(), w, false)
	assert.Contains(t, task.Message, "the driver was reloaded, but the GPUs are not in the mode")
	p.hardware.after = nil
	p.follow(n, w)
}

// The driver is reloaded only while all its GPUs are locked.
func TestMemoryModeThatChangesMeanwhile(t *testing.T) {
	p, n := startPlace(t, mi300, mi300b)
	w := p.profile("cpx", map[string]profile.Layout{mi300: {Compute: "CPX", Memory: "NPS1"}})
	p.claims.onLock = func() { p.hardware.gpu(mi300).setMemory("NPS4") }
	task := n.Apply(t.Context(), w, false)
	assert.Equal(t, v1beta1.Task{
		Phase: v1beta1.TaskFailed, Reason: names.ReasonHardwareFailed,
		Message: "put the AMD GPUs into memory mode NPS1: the mode of GPU gpu-0000-81-00-0 has changed meanwhile; retrying",
	}, task)
	assert.Empty(t, p.hardware.calls)
	p.claims.onLock = nil
	p.follow(n, w)
	assert.Equal(t, []string{"memory amd NPS1", "compute gpu-0000-81-00-0 CPX"}, p.hardware.calls)
}

// A switch that fails halfway is rolled back to how the GPUs were, also where the
// profile before says nothing of it.
func TestRollBack(t *testing.T) {
	for name, tt := range map[string]struct {
		fails string
		from  map[string]profile.Layout
	}{
		"compute mode": {"compute gpu-0000-81-00-0 QPX", nil},
		"partition":    {"create " + ones(hopper, 1)[0].Name(), nil},
		"MIG mode":     {"mig gpu-0000-01-00-0 on", nil},
		"memory mode":  {"memory amd NPS4", map[string]profile.Layout{hopper: off, mi300: {Compute: "DPX"}}},
		"from static":  {"create " + ones(hopper, 1)[0].Name(), map[string]profile.Layout{hopper: static(ones(hopper, 0, 6)...)}},
		"removal":      {"destroy " + ones(hopper, 6)[0].Name(), map[string]profile.Layout{hopper: static(ones(hopper, 0, 6)...)}},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlace(t, hopper, ampere, mi300)
			p.hardware.gpu(ampere).resets = true
			from := p.profile("from", tt.from)
			n := p.start()
			p.follow(n, from)
			before := p.hardware.state()
			target := p.profile("to", map[string]profile.Layout{hopper: static(ones(hopper, 0, 1)...), ampere: named, mi300: {Compute: "QPX", Memory: "NPS4"}})
			p.hardware.before = failing(tt.fails)
			task := n.Apply(t.Context(), target, false)
			assert.Equal(t, v1beta1.TaskFailed, task.Phase)
			assert.Equal(t, names.ReasonHardwareFailed, task.Reason)
			assert.Contains(t, task.Message, "scripted failure")
			assert.Equal(t, from, n.Applied())
			assert.Equal(t, target.Hash, n.journal().Applying.Snapshot.Hash)
			require.NoError(t, n.Restore(t.Context()), "it is not for Restore to decide")

			p.hardware.before = nil
			n = p.start() // the plugin may have been killed in between
			p.follow(n, from)
			if tt.from == nil { // MIG mode of Hopper is for claims to change
				before[0] = "gpu-0000-01-00-0 " + string(p.hardware.gpu(hopper).modes.MIG)
			}
			assert.Equal(t, before, p.hardware.state())
			p.follow(n, target)
		})
	}
}

// Who asked for a switch may find only after its end that something is wrong.
func TestRollBackOfWhatWasDone(t *testing.T) {
	p := newPlace(t, hopper, ampere, mi300, mi300b)
	p.hardware.gpu(ampere).resets = true
	before := p.hardware.state()
	target := p.profile("to", map[string]profile.Layout{ampere: static(ones(ampere, 0)...), mi300: {Compute: "QPX", Memory: "NPS4"}})
	p.follow(p.start(), target)
	n := p.start()
	for range 2 { // the answer may get lost
		require.Equal(t, v1beta1.TaskDone, n.RollBack(t.Context(), wish(""), false).Phase)
		assert.Equal(t, before, p.hardware.state())
		p.follows(n, wish(""))
	}
	why, _ := p.claims.why.Load(mi300)
	assert.Equal(t, "is being changed to what it is without a profile", why)

	// To ask for the profile from before is another thing: what it leaves as it is,
	// stays.
	p.follow(n, target)
	p.follow(n, p.profile("none", nil))
	assert.Equal(t, []string{"gpu-0000-01-00-0 off", "gpu-0000-03-00-0 on", "gpu-0000-81-00-0 QPX NPS4", "gpu-0000-82-00-0 CPX NPS4"}, p.hardware.state())
}

// A GPU that is done is so for claims, too, while others are not: what its claims
// release goes with them.
func TestGPUIsDoneByItself(t *testing.T) {
	two := ones(hopper, 5, 6)
	p, n := startPlace(t, hopper, other)
	p.follow(n, p.profile("cut", map[string]profile.Layout{hopper: static(two...), other: static(ones(other, 0)...)}))
	p.claims.hold("a", two[0])
	p.hardware.before = failing(gpu.NameOf(other))
	require.Equal(t, v1beta1.TaskFailed, n.Apply(t.Context(), p.profile("dynamic", nil), false).Phase)
	assert.False(t, n.Static(two[0]))
	assert.Equal(t, profile.Layout{}, n.Layout(hopper))
	assert.True(t, n.Static(ones(other, 0)[0]))
}

// On the way back one dead GPU does not keep the others from it.
func TestRollBackAroundADeadGPU(t *testing.T) {
	p := newPlace(t, hopper, other)
	whole := p.profile("whole", map[string]profile.Layout{hopper: off, other: off})
	cut := p.profile("cut", map[string]profile.Layout{hopper: static(ones(hopper, 0)...), other: static(ones(other, 0)...)})
	n := p.start()
	p.follow(n, whole)
	p.hardware.before = failing(gpu.NameOf(other))
	require.Equal(t, v1beta1.TaskFailed, n.Apply(t.Context(), cut, false).Phase)
	p.hardware.onModes = failing(other)
	task := n.Apply(t.Context(), whole, false)
	assert.Equal(t, names.ReasonHardwareFailed, task.Reason)
	assert.Contains(t, task.Message, "gpu-0000-02-00-0")
	assert.Equal(t, "gpu-0000-01-00-0 off", p.hardware.state()[0])
	p.hardware.before, p.hardware.onModes = nil, nil
	p.follow(n, whole)
}

// Nor does one that cannot be put back: it is told of.
func TestRollBackPastAForeignPartition(t *testing.T) {
	p := newPlace(t, hopper, other)
	from := p.profile("from", map[string]profile.Layout{hopper: static(ones(hopper, 0)...), other: static(ones(other, 0)...)})
	n := p.start()
	p.follow(n, from)
	p.hardware.before = failing("mig gpu-")
	require.Equal(t, v1beta1.TaskFailed, n.Apply(t.Context(), p.profile("to", map[string]profile.Layout{hopper: off, other: off}), false).Phase)
	p.hardware.before = nil
	p.hardware.gpu(hopper).live = partitions(ones(hopper, 0)[0], three(hopper, 4))
	for range 2 {
		task := n.RollBack(t.Context(), from, false)
		assert.Equal(t, v1beta1.TaskFailed, task.Phase)
		assert.Equal(t, names.ReasonForeignPartition, task.Reason)
		assert.Equal(t, "gpu-0000-02-00-0 on 1g.10gb_0", p.hardware.state()[1])
	}
	p.hardware.gpu(hopper).live = partitions(ones(hopper, 0)...)
	p.follow(n, from)
	p.hardware.gpu(hopper).live = partitions(ones(hopper, 0)[0], three(hopper, 4))
	require.ErrorContains(t, n.Restore(t.Context()), "was not created by Tranche")
}

// What was followed once can be gone back to, also if the profile does not fit any
// more.
func TestRollBackToWhatDoesNotResolve(t *testing.T) {
	p := newPlace(t, hopper)
	from := p.profile("from", map[string]profile.Layout{hopper: static(ones(hopper, 0, 6)...)})
	n := p.start()
	p.follow(n, from)
	p.hardware.before = func(string) error { return errScripted }
	require.Equal(t, v1beta1.TaskFailed, n.Apply(t.Context(), p.profile("to", map[string]profile.Layout{hopper: off}), false).Phase)
	p.hardware.before, p.unresolved = nil, errScripted
	require.Equal(t, v1beta1.TaskDone, n.Apply(t.Context(), from, false).Phase)
	assert.Equal(t, []string{"gpu-0000-01-00-0 on 1g.10gb_0 1g.10gb_6"}, p.hardware.state())
}

func TestNeedsReset(t *testing.T) {
	cut := map[string]profile.Layout{ampere: static(ones(ampere, 0)...), hopper: static(ones(hopper, 0)...)}
	t.Run("reboot is not allowed", func(t *testing.T) {
		p, n := startPlace(t, hopper, ampere)
		w := p.profile("cut", cut)
		task := n.Apply(t.Context(), w, false)
		assert.Equal(t, v1beta1.TaskRebootRequired, task.Phase)
		assert.Equal(t, names.ReasonRebootRequired, task.Reason)
		assert.Equal(t, "switch MIG on on GPU gpu-0000-03-00-0: GPU gpu-0000-03-00-0: the GPU needs a reset", task.Message)
		assert.Equal(t, "gpu-0000-03-00-0 off", p.hardware.state()[1])
		p.follow(n, p.profile("before", nil))
		assert.Equal(t, []string{"gpu-0000-01-00-0 on", "gpu-0000-03-00-0 off"}, p.hardware.state())
	})
	t.Run("reboot", func(t *testing.T) {
		p, n := startPlace(t, hopper, ampere)
		w := p.profile("cut", cut)
		require.Equal(t, v1beta1.TaskRebootRequired, n.Apply(t.Context(), w, true).Phase)
		assert.Equal(t, "gpu-0000-03-00-0 off pending on", p.hardware.state()[1])
		p.hardware.reboot()
		n = p.start()
		require.NoError(t, n.Restore(t.Context()))
		assert.Empty(t, p.hardware.gpu(hopper).live, "who asked for the reboot goes on")
		p.follow(n, w)
		assert.Equal(t, []string{"gpu-0000-01-00-0 on 1g.10gb_0", "gpu-0000-03-00-0 on 1g.10gb_0"}, p.hardware.state())
	})
	t.Run("the reboot is called off", func(t *testing.T) {
		p, n := startPlace(t, hopper, ampere)
		require.Equal(t, v1beta1.TaskRebootRequired, n.Apply(t.Context(), p.profile("cut", cut), true).Phase)
		p.follow(n, p.profile("before", nil))
		assert.Equal(t, "gpu-0000-03-00-0 off", p.hardware.state()[1], "nothing is pending")
	})
	t.Run("rolled back after the reboot", func(t *testing.T) {
		p, n := startPlace(t, hopper, ampere)
		w := p.profile("cut", cut)
		require.Equal(t, v1beta1.TaskRebootRequired, n.Apply(t.Context(), w, true).Phase)
		p.hardware.reboot()
		n = p.start()
		before := p.profile("before", nil)
		require.Equal(t, v1beta1.TaskRebootRequired, n.Apply(t.Context(), before, true).Phase)
		p.hardware.reboot()
		p.follow(p.start(), before)
		assert.Equal(t, "gpu-0000-03-00-0 off", p.hardware.state()[1])
	})
	t.Run("another GPU has failed", func(t *testing.T) {
		p := newPlace(t, hopper, ampere)
		p.hardware.before = failing("create")
		assert.Equal(t, names.ReasonHardwareFailed, p.start().Apply(t.Context(), p.profile("cut", cut), true).Reason)
	})
	t.Run("another GPU is in use", func(t *testing.T) {
		p := newPlace(t, hopper, ampere)
		p.hardware.before = func(call string) error {
			if call == "mig gpu-0000-01-00-0 on" {
				return fmt.Errorf("%w by process 4711 (python)", gpu.ErrInUse)
			}
			return nil
		}
		task := p.start().Apply(t.Context(), p.profile("cut", cut), true)
		assert.Equal(t, names.ReasonInUse, task.Reason)
		assert.Contains(t, task.Message, "switch MIG on on GPU gpu-0000-01-00-0: in use by process 4711 (python)")
	})
}

// A hardware that says yes and does nothing is not believed.
func TestReadBack(t *testing.T) {
	p, n := startPlace(t, hopper)
	p.hardware.after = func(call string) error {
		if strings.HasPrefix(call, "create") {
			p.hardware.mu.Lock()
			defer p.hardware.mu.Unlock()
			p.hardware.gpu(hopper).live = partitions(three(hopper, 4))
		}
		return nil
	}
	w := p.profile("cut", map[string]profile.Layout{hopper: static(ones(hopper, 0)...)})
	task := n.Apply(t.Context(), w, false)
	assert.Equal(t, "GPU gpu-0000-01-00-0 was changed without an error, but does not have the desired layout: "+
		"remaining step: create partition gpu-0000-01-00-0-mig-1g-10gb-0; partition gpu-0000-01-00-0-mig-3g-40gb-4 has appeared", task.Message)
	assert.Equal(t, profile.Layout{}, n.Layout(hopper))
}

func TestContextEnds(t *testing.T) {
	p := newPlace(t, hopper)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	task := p.start().Apply(ctx, p.profile("cut", map[string]profile.Layout{hopper: static(ones(hopper, 0)...)}), false)
	assert.Equal(t, v1beta1.TaskFailed, task.Phase)
	assert.Contains(t, task.Message, context.Canceled.Error())
}

// Where nothing can be written down, nothing is touched.
func TestDiskIsFull(t *testing.T) {
	p, n := startPlace(t, hopper)
	n.File = filepath.Join(p.file, "none", "profile.json")
	require.NoError(t, os.WriteFile(p.file, nil, 0o600))
	task := n.Apply(t.Context(), p.profile("cut", map[string]profile.Layout{hopper: static(ones(hopper, 0)...)}), false)
	assert.Equal(t, v1beta1.TaskFailed, task.Phase)
	assert.Contains(t, task.Message, "record the applied profile")
	assert.Empty(t, p.hardware.calls)
}
