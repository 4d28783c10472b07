package partition

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/profile"
	"github.com/tranche-dev/tranche/test/byhand"
	"github.com/tranche-dev/tranche/test/short"
)

// walker takes a node through random profiles, claims, kills and reboots.
type walker struct {
	*place
	*rand.Rand
	node *Node
	made int
	// holds are the devices that claims hold, by claim.
	holds map[string]gpu.Placement
}

// shape is a random one that a GPU can have.
func (w *walker) shape(gpuID, memory string) profile.Layout {
	switch gpuID {
	case mi300, mi300b:
		s := profile.Layout{Memory: memory}
		if w.IntN(2) == 0 {
			modes := byhand.Legal["NPS4"] // which both memory modes have
			s.Compute = modes[w.IntN(len(modes))]
		}
		return s
	case hopper, other, ampere:
		switch w.IntN(4) {
		case 0:
			return off
		case 1:
			return named
		case 2:
			var layout []gpu.Placement
			start := 0
			if w.IntN(2) == 0 {
				layout, start = append(layout, three(gpuID, 0)), 4
			}
			for i := start; i < 7; i++ {
				if w.IntN(2) == 0 {
					layout = append(layout, ones(gpuID, i)...)
				}
			}
			return static(layout...)
		}
	}
	return nothing
}

var nothing = profile.Layout{}

func (w *walker) profile() v1beta1.ProfileSnapshot {
	memory := []string{"", "NPS1", "NPS4"}[w.IntN(3)]
	layouts := map[string]profile.Layout{}
	for _, c := range w.hardware.gpus {
		layouts[c.PCIAddress] = w.shape(c.PCIAddress, memory)
	}
	w.made++
	return w.place.profile(fmt.Sprint("profile-", w.made), layouts)
}

// claim is one that the scheduler and Prepare would let pass.
func (w *walker) claim() {
	c := w.hardware.gpus[w.IntN(len(w.hardware.gpus))]
	p := c.Placements[w.IntN(len(c.Placements))]
	layout := w.node.Layout(c.PCIAddress)
	live, _ := w.hardware.Live(w.t.Context(), c.PCIAddress)
	for _, held := range w.holds {
		if held.GPU == p.GPU && (p.Type == gpu.TypeGPU || held.Type == gpu.TypeGPU || held.Profile != p.Profile && p.Type == gpu.TypeXCP || partitionAt(held).Overlaps(p)) {
			return
		}
	}
	switch {
	case !layout.Offers(p), layout.Compute != "" && !strings.EqualFold(p.Profile, layout.Compute):
		return
	case p.Type == gpu.TypeXCP || p.Profile == "spx":
		mode := strings.ToUpper(p.Profile)
		if !slices.Contains(c.modes.Computes, mode) {
			return
		}
		c.modes.Compute = mode
	case p.Type == gpu.TypeMIG:
		if slices.ContainsFunc(live, func(q gpu.Partition) bool { return q.Overlaps(p) && !q.Is(p) }) {
			return
		}
		c.setMIG(gpu.MIGOn)
		if !slices.ContainsFunc(live, func(q gpu.Partition) bool { return q.Is(p) }) {
			c.live = append(c.live, partitionAt(p))
		}
	default:
		if len(live) > 0 || c.modes.MIGNeedsReset && c.modes.MIG == gpu.MIGOn {
			return
		}
		if c.modes.MIG == gpu.MIGOn {
			c.setMIG(gpu.MIGOff)
		}
	}
	w.made++
	name := fmt.Sprint("claim-", w.made)
	w.claims.hold(name, p)
	w.holds[name] = p
}

// release is what the Manager does for a claim.
func (w *walker) release(name string) {
	p, ok := w.holds[name]
	if !ok {
		return
	}
	if c := w.hardware.gpu(p.GPU); !w.node.Static(p) {
		c.live = slices.DeleteFunc(c.live, func(q gpu.Partition) bool { return q.Is(p) })
	}
	w.claims.release(name)
	delete(w.holds, name)
}

// change takes the node to a wish, perhaps with a kill in the midst of it.
func (w *walker) change(to v1beta1.ProfileSnapshot) {
	require := require.New(w.t)
	task := w.node.Plan(w.t.Context(), to)
	require.Equal(v1beta1.TaskPlanned, task.Phase, task.Message)
	w.leave(task)
	from := w.node.Applied()
	if w.IntN(2) == 0 {
		w.killed(w.IntN(20), func(n *Node) { n.Apply(w.t.Context(), to, false) })
		w.node = w.start()
		w.nothingForeign()
		if w.IntN(2) == 0 {
			task := w.node.RollBack(w.t.Context(), from, false)
			require.Equal(v1beta1.TaskDone, task.Phase, task.Message)
			to = from
		}
	}
	w.hardware.calls = nil
	task = w.node.Apply(w.t.Context(), to, false)
	require.Equal(v1beta1.TaskDone, task.Phase, task.Message)
	w.follows(w.node, to)
	w.nothingForeign()
	w.allThere()
}

// leave makes those go who have to, and checks what is promised to the others.
func (w *walker) leave(task v1beta1.Task) {
	seen, err := w.node.lookAll(w.t.Context(), w.hardware.snapshot(), w.claims.Held(addresses(w.hardware.snapshot())))
	require.NoError(w.t, err)
	setDesired(seen, w.node.planned.Layouts)
	for _, c := range profile.NewChanges(seen).GPUs {
		for _, s := range c.Steps {
			if s.Op == profile.OpDestroy {
				require.NotContains(w.t, c.Keeps, s.Placement.Name(), "what is destroyed is not kept")
			}
		}
	}
	for _, change := range task.Changes {
		for name, p := range w.holds {
			if p.GPUName() == change.GPU && !slices.Contains(change.KeptDevices, p.Name()) {
				w.release(name)
			}
		}
	}
}

// nothingForeign checks that every partition is known to be somebody's.
func (w *walker) nothingForeign() {
	for _, c := range w.hardware.gpus {
		for _, q := range c.live {
			held := slices.ContainsFunc(slices.Collect(maps.Values(w.holds)), q.Is)
			require.True(w.t, held || w.node.Static(q.Placement()), "%s is foreign", q.Name())
		}
	}
}

// allThere checks that every claim has what it holds.
func (w *walker) allThere() {
	for name, p := range w.holds {
		live, err := w.hardware.Live(w.t.Context(), p.GPU)
		require.NoError(w.t, err)
		if p.Type == gpu.TypeGPU {
			require.Empty(w.t, live, name)
			continue
		}
		require.True(w.t, slices.ContainsFunc(live, func(q gpu.Partition) bool { return q.Is(p) }), "%s has lost %s", name, p.Name())
	}
}

// Whatever profiles, claims, kills and reboots come: after a switch nothing is left to
// do, those who were told that they may stay have what they had, and no partition is
// there that nobody knows of.
func TestRandomWalks(t *testing.T) {
	for seed := range uint64(short.Of(8, 30)) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			p := newPlace(t, hopper, other, ampere, plain, mi300, mi300b, mi210)
			p.hardware.gpu(ampere).resets = true
			w := &walker{place: p, Rand: rand.New(rand.NewPCG(seed, 1)), node: p.start(), holds: map[string]gpu.Placement{}}
			for range 15 {
				for range 6 {
					w.claim()
				}
				for name := range w.holds {
					if w.IntN(3) == 0 {
						w.release(name)
					}
				}
				if w.IntN(5) == 0 {
					for name := range w.holds {
						w.release(name)
					}
					p.hardware.reboot()
					w.node = p.start()
					require.NoError(t, w.node.Restore(t.Context()))
					w.nothingForeign()
				}
				w.change(w.profile())
			}
		})
	}
}
