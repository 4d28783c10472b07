package partition

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware"
	"github.com/tranche-dev/tranche/pkg/profile"
)

func TestGPUThatDoesNotAnswer(t *testing.T) {
	p, n := startPlace(t, hopper, other)
	w := p.profile("cut", map[string]profile.Layout{hopper: static(ones(hopper, 0)...), other: off})
	p.hardware.onModes = failing(other)
	fails := func(message string) {
		t.Helper()
		want := v1beta1.Task{Phase: v1beta1.TaskFailed, Reason: names.ReasonHardwareFailed, Message: message}
		assert.Equal(t, want, n.Plan(t.Context(), w))
		assert.Equal(t, want, n.Apply(t.Context(), w, false))
		assert.Empty(t, p.hardware.calls)
	}
	fails("read how GPU gpu-0000-02-00-0 is set: scripted failure")
	p.hardware.onModes, p.hardware.onLive = nil, failing(other)
	fails("list the partitions of GPU gpu-0000-02-00-0: scripted failure")

	// What seems to be foreign is looked at again, which may fail.
	p.hardware.gpu(hopper).setMIG(gpu.MIGOn)
	p.hardware.gpu(hopper).live = partitions(three(hopper, 4))
	looks := 0
	p.hardware.onLive = func(gpuID string) error {
		if gpuID == hopper {
			looks++
		}
		if gpuID == hopper && looks%2 == 0 {
			return errScripted
		}
		return nil
	}
	fails("list the partitions of GPU gpu-0000-01-00-0: scripted failure")

	driver := n.Driver
	n.Driver = func(string) (hardware.Driver, error) { return nil, errScripted }
	fails("read how GPU gpu-0000-01-00-0 is set: scripted failure; read how GPU gpu-0000-02-00-0 is set: scripted failure")
	n.Driver, p.hardware.onLive, p.hardware.gpu(hopper).live = driver, nil, nil

	// After a change, too: it is not done.
	p.hardware.onLive = func(gpuID string) error {
		p.hardware.mu.Lock()
		defer p.hardware.mu.Unlock()
		if gpuID == hopper && len(p.hardware.calls) > 0 {
			return errScripted
		}
		return nil
	}
	task := n.Apply(t.Context(), w, false)
	assert.Equal(t, "list the partitions of GPU gpu-0000-01-00-0: scripted failure", task.Message)
	assert.Equal(t, profile.Layout{}, n.Layout(hopper))
	p.hardware.onLive = nil
	p.follow(n, w)
}

// A driver that was unloaded for a memory mode, and not loaded yet, must not look as if
// the node had no such GPUs.
func TestDriverIsOut(t *testing.T) {
	p, n := startPlace(t, hopper, mi300)
	w := p.profile("cpx-nps4", map[string]profile.Layout{mi300: {Compute: "CPX", Memory: "NPS4"}})
	all := p.hardware.gpus
	p.hardware.before = func(string) error { p.hardware.gpus = all[:1]; return errScripted }
	require.Equal(t, v1beta1.TaskFailed, n.Apply(t.Context(), w, false).Phase)
	p.hardware.before = nil
	const message = "the node had AMD GPUs when its profile was to be changed, and has none now: is their driver loaded?"
	for _, task := range []v1beta1.Task{
		n.Apply(t.Context(), w, false), n.Plan(t.Context(), w), n.RollBack(t.Context(), wish(""), false), p.start().Apply(t.Context(), wish(""), false),
	} {
		assert.Equal(t, v1beta1.TaskFailed, task.Phase)
		assert.Equal(t, message, task.Message)
	}
	p.hardware.gpus = all
	p.follow(n, w)
}

// A GPU that is known to be lost is left alone, and the others follow the profile.
func TestLostGPU(t *testing.T) {
	p, n := startPlace(t, hopper, other, mi300, mi300b)
	lost := map[string]bool{other: true, mi300b: true}
	n.Lost = func(gpuID string) bool { return lost[gpuID] }
	p.hardware.onModes = func(gpuID string) error {
		if lost[gpuID] {
			return errScripted
		}
		return nil
	}
	w := p.profile("cut", map[string]profile.Layout{hopper: static(ones(hopper, 0)...), other: static(ones(other, 0)...), mi300: {Memory: "NPS4"}})
	require.Equal(t, v1beta1.TaskDone, n.Apply(t.Context(), w, false).Phase)
	assert.Equal(t, "gpu-0000-01-00-0 on 1g.10gb_0", p.hardware.state()[0])
	assert.Equal(t, profile.Layout{}, n.Layout(other))
	assert.Contains(t, p.there, other, "rules that count GPUs count it")

	// When it answers again it is brought there, whatever the rules come to by then.
	lost = nil
	p.unresolved = errScripted
	require.NoError(t, n.Restore(t.Context()))
	p.unresolved = nil
	p.follows(n, w)
	assert.Equal(t, "gpu-0000-02-00-0 on 1g.10gb_0", p.hardware.state()[1])
}

// A GPU falls silent in the midst of a change, and the others go back: what was made
// on it is still ours when it answers again, and so is how it was set before.
func TestGPULostInTheMidst(t *testing.T) {
	for name, restart := range map[string]bool{"": false, "the plugin is restarted": true} {
		t.Run(name, func(t *testing.T) {
			p := newPlace(t, hopper, other, ampere)
			p.hardware.gpu(ampere).resets = true
			n := p.start()
			first := p.profile("first", nil)
			p.follow(n, first)
			second := p.profile("second", map[string]profile.Layout{hopper: static(ones(hopper, 0)...), other: static(ones(other, 3)...), ampere: static(ones(ampere, 2)...)})
			p.hardware.after = failing("create gpu-0000-02", "create gpu-0000-03")
			require.Equal(t, v1beta1.TaskFailed, n.Apply(t.Context(), second, false).Phase)
			p.hardware.after = nil

			silent := true
			lost := func(gpuID string) bool { return silent && gpuID != hopper }
			n.Lost = lost
			require.Equal(t, v1beta1.Task{Phase: v1beta1.TaskDone}, n.RollBack(t.Context(), first, false))
			assert.Equal(t, "gpu-0000-01-00-0 on", p.hardware.state()[0])
			assert.Equal(t, []string{"gpu-0000-02-00-0 on 1g.10gb_3", "gpu-0000-03-00-0 on 1g.10gb_2"}, p.hardware.state()[1:])
			if restart {
				n = p.start()
				n.Lost = lost
			}
			assert.True(t, n.Static(ones(other, 3)[0]), "what is on it is foreign")
			// Another wish that comes and goes while it is silent changes nothing of that.
			third := p.profile("third", map[string]profile.Layout{hopper: off})
			require.Equal(t, v1beta1.Task{Phase: v1beta1.TaskDone}, n.Apply(t.Context(), third, false))
			require.Equal(t, v1beta1.Task{Phase: v1beta1.TaskDone}, n.Apply(t.Context(), first, false))

			silent = false
			require.NoError(t, n.Restore(t.Context()))
			assert.Equal(t, []string{"gpu-0000-02-00-0 on", "gpu-0000-03-00-0 off"}, p.hardware.state()[1:])
			p.follows(n, first)
			require.Empty(t, n.journal().Before)
		})
	}
}

// A load of the driver takes down a GPU that does not answer, too: what claims hold of
// it is in the way.
func TestHolderOfALostGPU(t *testing.T) {
	p, n := startPlace(t, mi300, mi300b, hopper)
	n.Lost = func(gpuID string) bool { return gpuID == mi300b || gpuID == hopper }
	p.claims.hold("of another vendor", wholeOf(hopper))
	first := p.profile("first", map[string]profile.Layout{mi300: {Compute: "DPX"}})
	require.Equal(t, v1beta1.TaskDone, n.Apply(t.Context(), first, false).Phase)
	p.claims.hold("a", xcp(mi300b, "cpx", 0))
	w := p.profile("nps4", map[string]profile.Layout{mi300: {Memory: "NPS4"}})
	before := p.hardware.state()
	for _, task := range []v1beta1.Task{n.Plan(t.Context(), w), n.Apply(t.Context(), w, false)} {
		assert.Equal(t, v1beta1.TaskFailed, task.Phase)
		assert.Equal(t, names.ReasonInUse, task.Reason)
		assert.Contains(t, task.Message, "GPU gpu-0000-82-00-0, which does not answer, is in use by claim team/a")
	}
	assert.Equal(t, before, p.hardware.state())
	// Other modes do not concern it.
	require.Equal(t, v1beta1.TaskDone, n.Apply(t.Context(), p.profile("qpx", map[string]profile.Layout{mi300: {Compute: "QPX"}}), false).Phase)

	p.claims.release("a")
	require.Equal(t, v1beta1.TaskDone, n.Apply(t.Context(), w, false).Phase)
	// Nor is it put back under whoever has come since.
	p.hardware.reboot()
	p.claims.hold("b", xcp(mi300b, "cpx", 0))
	before = p.hardware.state()
	require.ErrorContains(t, n.Restore(t.Context()), "is in use by claim team/b")
	assert.Equal(t, before, p.hardware.state())
	p.claims.release("b")
	require.NoError(t, n.Restore(t.Context()))
	assert.Contains(t, p.hardware.state()[0], "NPS4")
}

// What a profile only says of what is offered holds for a GPU, too, that comes later.
func TestOfferOfAGPUThatComesLater(t *testing.T) {
	p, n := startPlace(t, hopper, other, plain)
	silent := true
	n.Lost = func(gpuID string) bool { return silent && gpuID == other }
	offers := profile.Layout{Named: true, Profiles: []string{"1g.10gb"}, NoWhole: true}
	w := p.profile("offers", map[string]profile.Layout{hopper: offers, other: offers})
	require.Equal(t, v1beta1.TaskDone, n.Apply(t.Context(), w, false).Phase)
	assert.Equal(t, offers, n.Layout(hopper))
	assert.Equal(t, profile.Layout{}, n.Layout(other))
	assert.True(t, n.Behind(other))
	assert.False(t, n.Behind(hopper))
	assert.False(t, n.Behind(plain))

	silent = false
	require.NoError(t, n.Restore(t.Context()))
	assert.Equal(t, offers, n.Layout(other))
	assert.False(t, n.Behind(other))
	p.follows(n, w)
	assert.Equal(t, offers, p.start().Layout(other))
}
