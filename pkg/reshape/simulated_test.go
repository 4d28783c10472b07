package reshape_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/api/v1alpha1"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware/simulate"
	"github.com/tranche-dev/tranche/pkg/hardware/simulate/amdgpu"
	"github.com/tranche-dev/tranche/pkg/hardware/simulate/nvstate"
)

// walk goes from each wish to each other, and to itself, once.
func (m *machine) walk(wishes []v1alpha1.Wish) {
	m.t.Helper()
	for i, w := range wishes {
		m.follow(w)
		for _, other := range wishes[i+1:] {
			m.follow(w)
			m.follow(other)
		}
	}
	m.follow(wishes[len(wishes)-1])
	m.follow(wishes[0])
}

// From each profile to each other, on Hopper and on Ampere that is reset.
func TestEveryWayOnSimulatedMIG(t *testing.T) {
	for _, model := range []string{"H100-80GB", "A100-40GB"} {
		t.Run(model, func(t *testing.T) {
			m := nvidiaMachine(t, model, "  migMode: disabled\n")
			wishes := []v1alpha1.Wish{
				migWish("whole", v1alpha1.MIGDisabled), migWish("dynamic", v1alpha1.MIGDynamic),
				migWish("balanced", v1alpha1.MIGStatic, part("3g", 1), part("2g", 1), part("1g", 2)),
				migWish("ones", v1alpha1.MIGStatic, v1alpha1.StaticPartition{Profile: "1g"}),
			}
			m.walk(wishes)
			m.follow(wishes[3])
			require.Len(t, strings.Fields(m.state()[0]), 1+7)
		})
	}
}

// The plugin dies at each point of a switch; the next one goes on, or back.
func TestCrashOnSimulatedMIG(t *testing.T) {
	from := migWish("balanced", v1alpha1.MIGStatic, part("3g", 1), part("2g", 1), part("1g", 2))
	target := migWish("ones", v1alpha1.MIGStatic, part("1g", 6))
	died := true
	for n := 0; died; n++ {
		require.Less(t, n, 100)
		m := nvidiaMachine(t, "H100-80GB", "")
		m.follow(from)
		before := m.state()
		m.left = n
		m.node.Apply(t.Context(), target, false)
		died = m.dead
		m.restart()
		m.nothingForeign()
		if n%2 == 0 {
			require.Equal(t, v1alpha1.TaskDone, m.node.RollBack(t.Context(), from, false).Phase)
			m.follows(from)
			require.Equal(t, before, m.state(), "point %d", n)
		} else {
			m.follow(target)
		}
		n += 2 // the points of two cards follow each other
	}
}

// A claim that holds a partition of the new layout keeps it, with its UUID.
func TestHolderStaysOnSimulatedMIG(t *testing.T) {
	m := nvidiaMachine(t, "H100-80GB", "")
	card := m.cards()[0]
	i := slices.IndexFunc(card.Placements, func(p gpu.Placement) bool { return p.Profile == "2g.20gb" && p.Start == 2 })
	c := claimFor("a", card.Placements[i])
	held, err := m.manager.Prepare(t.Context(), c)
	require.NoError(t, err)
	balanced := migWish("balanced", v1alpha1.MIGStatic, part("3g", 1), part("2g", 1), part("1g", 2))
	task := m.node.Plan(t.Context(), balanced)
	require.Len(t, task.Changes, 2)
	assert.Contains(t, task.Changes[0].Keeps, card.Placements[i].Name())
	m.follow(balanced)
	again, err := m.manager.Prepare(t.Context(), c)
	require.NoError(t, err)
	assert.Equal(t, held.Devices[0].UUID, again.Devices[0].UUID)
	require.NoError(t, m.manager.Unprepare(t.Context(), held.Claim))
	m.follows(balanced)

	require.NoError(t, simulate.Reboot(m.root))
	m.restart()
	want := m.state()
	require.NoError(t, m.node.Restore(t.Context()))
	assert.NotEqual(t, want, m.state())
	m.follows(balanced)
}

// A partition that somebody made by hand is named with the command that removes it.
func TestForeignOnSimulatedMIG(t *testing.T) {
	m := nvidiaMachine(t, "H100-80GB", "")
	card := m.cards()[0]
	i := slices.IndexFunc(card.Placements, func(p gpu.Placement) bool { return p.Profile == "2g.20gb" })
	_, err := m.nvidia.Create(t.Context(), card.Placements[i])
	require.NoError(t, err)
	task := m.node.Plan(t.Context(), migWish("whole", v1alpha1.MIGDisabled))
	assert.Equal(t, v1alpha1.TaskRefused, task.Phase)
	assert.Equal(t, v1alpha1.ReasonForeignPartition, task.Reason)
	assert.Contains(t, task.Message, "to free it, run on the node: nvidia-smi mig -i 0000:1b:00.0 -dci -gi")
	// Where it fits in, it is taken over.
	m.follow(migWish("two", v1alpha1.MIGStatic, part("2g", 2)))
}

// A process outside Kubernetes is named; nothing was changed, and it works when it is
// gone.
func TestProcessOnSimulatedMIG(t *testing.T) {
	m := nvidiaMachine(t, "H100-80GB", "")
	require.NoError(t, simulate.AddProcess(m.root, simulate.Process{GPU: "0000:1b:00.0", PID: 4711}))
	ones := migWish("ones", v1alpha1.MIGStatic, part("1g", 7))
	task := m.node.Apply(t.Context(), ones, false)
	assert.Equal(t, v1alpha1.TaskFailed, task.Phase)
	assert.Equal(t, v1alpha1.ReasonInUse, task.Reason)
	assert.Contains(t, task.Message, "4711")
	assert.Equal(t, "off", m.state()[0])
	require.NoError(t, simulate.RemoveProcess(m.root, 4711))
	m.follow(ones)
}

func TestRebootOnSimulatedAmpere(t *testing.T) {
	dynamic := migWish("dynamic", v1alpha1.MIGDynamic)
	m := nvidiaMachine(t, "A100-40GB", "  migMode: disabled\n")
	require.NoError(t, simulate.SetFaults(m.root, simulate.Faults{Resets: []nvstate.ResetFault{{GPU: "*", Refused: true}}}))
	task := m.node.Apply(t.Context(), dynamic, false)
	assert.Equal(t, v1alpha1.TaskRebootRequired, task.Phase, task.Message)
	assert.Equal(t, []string{"off", "off"}, m.state())

	task = m.node.Apply(t.Context(), dynamic, true)
	assert.Equal(t, v1alpha1.TaskRebootRequired, task.Phase, task.Message)
	assert.Equal(t, []string{"off pending on", "off pending on"}, m.state())
	require.NoError(t, simulate.Reboot(m.root))
	m.restart()
	m.follow(dynamic)
	assert.Equal(t, []string{"on", "on"}, m.state())
}

// From each pair of modes to each other.
func TestEveryWayOnSimulatedAMD(t *testing.T) {
	m := amdMachine(t)
	wishes := []v1alpha1.Wish{
		amdWish("spx-nps1", "SPX", "NPS1"), amdWish("cpx-nps4", "CPX", "NPS4"), amdWish("qpx-nps4", "QPX", "NPS4"), amdWish("dpx-nps1", "DPX", "NPS1"),
		amdWish("as-it-is", "", ""),
	}
	m.walk(wishes)
}

func TestCrashOnSimulatedAMD(t *testing.T) {
	died := true
	for n := 0; died; n++ {
		require.Less(t, n, 100)
		m := amdMachine(t)
		from, target := amdWish("default", "", ""), amdWish("qpx-nps4", "QPX", "NPS4")
		m.follow(from)
		before := m.state()
		m.left = n
		m.node.Apply(t.Context(), target, false)
		died = m.dead
		m.restart()
		if n%2 == 0 {
			task := m.node.RollBack(t.Context(), from, false)
			require.Equal(t, v1alpha1.TaskDone, task.Phase, task.Message)
			require.Equal(t, before, m.state(), "point %d", n)
			continue
		}
		m.follow(target)
		n += 4 // each takes a while
	}
}

// A request that gets lost on the load of the driver is noticed, and nothing is left
// halfway.
func TestMemoryModeLostOnSimulatedAMD(t *testing.T) {
	m := amdMachine(t)
	from, target := amdWish("default", "", ""), amdWish("cpx-nps4", "CPX", "NPS4")
	m.follow(from)
	before := m.state()
	require.NoError(t, amdgpu.SetFaults(m.root, amdgpu.Faults{MemoryModeLost: true}))
	task := m.node.Apply(t.Context(), target, false)
	assert.Equal(t, v1alpha1.TaskFailed, task.Phase)
	assert.Equal(t, v1alpha1.ReasonHardwareFailed, task.Reason)
	assert.Contains(t, task.Message, "NPS4 was asked for, but")
	assert.Equal(t, v1alpha1.TaskDone, m.node.RollBack(t.Context(), from, false).Phase)
	assert.Equal(t, before, m.state())

	require.NoError(t, amdgpu.SetFaults(m.root, amdgpu.Faults{}))
	m.follow(target)
	require.NoError(t, amdgpu.Reboot(m.root))
	m.restart()
	require.NoError(t, m.node.Restore(t.Context()))
	m.follows(target)
}

func TestProcessOnSimulatedAMD(t *testing.T) {
	m := amdMachine(t)
	require.NoError(t, amdgpu.StartProcess(m.root, amdgpu.Process{PID: 4242, Name: "python3", Cards: []string{"0000:05:00.0"}}))
	task := m.node.Apply(t.Context(), amdWish("cpx-nps4", "CPX", "NPS4"), false)
	assert.Equal(t, v1alpha1.ReasonInUse, task.Reason)
	assert.Contains(t, task.Message, "4242")
}
