package partition_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/test/short"
	"github.com/tranche-dev/tranche/test/simulator/nvdriver"
)

// walk goes from each wish to each other, and to itself, once.
func (m *machine) walk(wishes []v1beta1.ProfileSnapshot) {
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

// From each profile to each other, on every model; Ampere is reset for it.
func TestEveryWayOnSimulatedMIG(t *testing.T) {
	ones := v1beta1.StaticPartition{Profile: "1g"}
	for model, want := range map[string]int{
		"A30-24GB": 4, "A100-40GB": 7, "H100-80GB": 7, "H200-141GB": 7, "B200-180GB": 7, "RTX-PRO-6000-Blackwell-96GB": 4,
	} {
		if testing.Short() && model != "A30-24GB" && model != "H100-80GB" {
			continue
		}
		t.Run(model, func(t *testing.T) {
			m := nvidiaMachine(t, model, "  migMode: disabled\n")
			m.walk([]v1beta1.ProfileSnapshot{
				migWish("whole", v1beta1.MIGDisabled), migWish("dynamic", v1beta1.MIGDynamic), migWish("enabled", v1beta1.MIGNoPartitions),
				migWish("balanced", v1beta1.MIGStatic, part("2g", 1), ones), migWish("ones", v1beta1.MIGStatic, ones),
			})
			m.follow(migWish("ones", v1beta1.MIGStatic, ones))
			require.Len(t, strings.Fields(m.state()[0]), 1+want)
		})
	}
}

// The plugin dies at points of a switch. The next one goes back, also to a profile that left a GPU
// unchanged which the switch has begun to change, or goes on.
func TestCrashOnSimulatedGPUs(t *testing.T) {
	hopper := func(t *testing.T) *machine { return nvidiaMachine(t, "H100-80GB", "") }
	balanced := migWish("balanced", v1beta1.MIGStatic, part("3g", 1), part("2g", 1), part("1g", 2))
	for name, tt := range map[string]struct {
		machine func(*testing.T) *machine
		// follows are the wishes before: the switch is from the last one.
		follows []v1beta1.ProfileSnapshot
		target  v1beta1.ProfileSnapshot
		// unchanged is how many GPUs, from the first one on, the target leaves unchanged.
		unchanged int
		// every is 1 where the plugin dies at each point. The points of two GPUs follow each other.
		every int
	}{
		"MIG": {hopper, []v1beta1.ProfileSnapshot{balanced}, migWish("ones", v1beta1.MIGStatic, part("1g", 6)), 0, 3},
		"MIG beside an unchanged GPU": {
			hopper, []v1beta1.ProfileSnapshot{balanced, ruleWish("from", v1beta1.Rule{GPUs: at(first), MIG: static(part("3g", 1))}, keep)},
			ruleWish("target", v1beta1.Rule{GPUs: at(second), MIG: disabled}, keep), 1, 1,
		},
		"AMD": {
			func(t *testing.T) *machine { return amdMachine(t, "mi300x8") },
			[]v1beta1.ProfileSnapshot{amdWish("default", "", "")}, amdWish("qpx-nps4", "QPX", "NPS4"), 0, 3,
		},
	} {
		t.Run(name, func(t *testing.T) {
			died := true
			for n := 0; died; n += tt.every {
				require.Less(t, n, 100)
				m := tt.machine(t)
				for _, w := range tt.follows {
					m.follow(w)
				}
				from, before := tt.follows[len(tt.follows)-1], m.state()
				m.left = n
				m.node.Apply(t.Context(), tt.target, false)
				died = m.dead
				m.restart()
				m.nothingForeign()
				if n%2 == 1 {
					m.follow(tt.target)
					require.Equal(t, before[:tt.unchanged], m.state()[:tt.unchanged], "point %d", n)
					continue
				}
				require.Equal(t, v1beta1.Task{Phase: v1beta1.TaskDone}, m.node.RollBack(t.Context(), from, false))
				m.follows(from)
				require.Equal(t, before, m.state(), "point %d", n)
			}
		})
	}
}

// A claim that holds a partition of the new layout keeps it, with its UUID.
func TestHolderStaysOnSimulatedMIG(t *testing.T) {
	m := nvidiaMachine(t, "H100-80GB", "")
	g := m.gpus()[0]
	i := slices.IndexFunc(g.Placements, func(p gpu.Placement) bool { return p.Profile == "2g.20gb" && p.Start == 2 })
	c := claimFor("a", g.Placements[i])
	held, _, err := m.manager.Prepare(t.Context(), c)
	require.NoError(t, err)
	balanced := migWish("balanced", v1beta1.MIGStatic, part("3g", 1), part("2g", 1), part("1g", 2))
	task := m.node.Plan(t.Context(), balanced)
	require.Len(t, task.Changes, 2)
	assert.Contains(t, task.Changes[0].KeptDevices, g.Placements[i].Name())
	m.follow(balanced)
	again, _, err := m.manager.Prepare(t.Context(), c)
	require.NoError(t, err)
	assert.Equal(t, held.Devices[0].UUID, again.Devices[0].UUID)
	require.NoError(t, m.manager.Unprepare(t.Context(), held.Claim))
	m.follows(balanced)

	require.NoError(t, nvdriver.Reboot(m.root))
	m.restart()
	want := m.state()
	require.NoError(t, m.node.Restore(t.Context()))
	assert.NotEqual(t, want, m.state())
	m.follows(balanced)
}

// From each pair of modes to each other, and to no wish, on every model.
func TestEveryWayOnSimulatedAMD(t *testing.T) {
	for _, name := range short.Some([]string{"mi300x8", "mi308x8", "mi300a4", "mi355x8"}, 1) {
		t.Run(name, func(t *testing.T) {
			m := amdMachine(t, name)
			modes, err := m.amd.Modes(t.Context(), m.gpus()[0].PCIAddress)
			require.NoError(t, err)
			wishes := []v1beta1.ProfileSnapshot{amdWish("as-it-is", "", "")}
			for _, memory := range modes.Memories {
				// The first and the last: all of them would take long.
				legal := modes.Legal[memory]
				for _, compute := range slices.Compact([]string{legal[0], legal[len(legal)-1]}) {
					wishes = append(wishes, amdWish(compute+"-"+memory, compute, memory))
				}
			}
			m.walk(wishes)
		})
	}
}

// Claims come and go while profiles do: a switch waits for them or they for it, and
// nobody takes what is another's.
func TestClaimsMeanwhileOnSimulatedMIG(t *testing.T) {
	m := nvidiaMachine(t, "H100-80GB", "")
	wishes := []v1beta1.ProfileSnapshot{
		migWish("ones", v1beta1.MIGStatic, part("1g", 6)), migWish("dynamic", v1beta1.MIGDynamic),
		migWish("balanced", v1beta1.MIGStatic, part("3g", 1), part("2g", 1), part("1g", 2)),
	}
	stop := make(chan struct{})
	var workers sync.WaitGroup
	for worker := range 3 {
		workers.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				g := m.gpus()[i%2]
				p := g.Placements[(7*i+worker)%len(g.Placements)]
				if !m.node.Layout(g.PCIAddress).Offers(p) {
					continue
				}
				c := claimFor(fmt.Sprintf("%d-%d", worker, i), p)
				record, _, err := m.manager.Prepare(t.Context(), c)
				if err != nil {
					continue // another has it, or the profile has changed since
				}
				live, err := m.Live(t.Context(), g.PCIAddress)
				if assert.NoError(t, err) && p.Type == gpu.TypeMIG {
					assert.True(t, slices.ContainsFunc(live, func(q gpu.Partition) bool { return q.Is(p) && q.UUID == record.Devices[0].UUID }), "%s is gone", p.Name())
				}
				assert.NoError(t, m.manager.Unprepare(t.Context(), record.Claim))
			}
		})
	}
	for i := range 9 {
		w := wishes[i%len(wishes)]
		require.Eventually(t, func() bool {
			task := m.node.Apply(t.Context(), w, false)
			if task.Phase != v1beta1.TaskDone {
				assert.Equal(t, names.ReasonInUse, task.Reason, task.Message)
			}
			return task.Phase == v1beta1.TaskDone
		}, time.Minute, time.Millisecond)
	}
	close(stop)
	workers.Wait()
	m.follow(wishes[2])
	require.Empty(t, m.manager.Held([]string{m.gpus()[0].PCIAddress, m.gpus()[1].PCIAddress}))
}
