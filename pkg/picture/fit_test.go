package picture

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/tranche-dev/tranche/pkg/gpu"
)

// devicesOf is the placed devices of a card, and what there is of it.
func devicesOf(t *testing.T, card []resourceapi.ResourceSlice) ([]*device, gpu.Counters) {
	t.Helper()
	p := pools(card)[0]
	var out []*device
	for _, d := range p.devices {
		out = append(out, newDevice(p.card, d))
	}
	positions(p.counters, out)
	return out, p.counters
}

// most finds the greatest number of devices of a kind by trying everything.
func most(u usage, of []*device) int {
	if len(of) == 0 {
		return 0
	}
	best := most(u, of[1:])
	if u.fits(of[0]) {
		best = max(best, 1+most(u.with(of[0]), of[1:]))
	}
	return best
}

// Whatever is held, the greedy count is what the scheduler could really place.
func TestGreedyCountsAreTheBest(t *testing.T) {
	for name, card := range map[string][]resourceapi.ResourceSlice{"H100": h100Card("node-a", 0), "MI300X": mi300x("node-a", 0)} {
		t.Run(name, func(t *testing.T) { greedyCountsAreTheBest(t, card) })
	}
}

func greedyCountsAreTheBest(t *testing.T, card []resourceapi.ResourceSlice) {
	devices, total := devicesOf(t, card)
	kinds := map[string][]*device{}
	for _, d := range devices {
		kinds[d.label] = append(kinds[d.label], d)
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		u := usage{total: total, taken: gpu.Counters{}, held: map[string]bool{}}
		for range random.IntN(5) {
			if d := devices[random.IntN(len(devices))]; u.fits(d) {
				u = u.with(d)
			}
		}
		got := counts(fits(u, devices))
		for label, of := range kinds {
			assert.Equal(t, most(u, of), got[label], "%s beside %v", label, u.held)
		}
	}
}

func TestVariantsAreLeftOutUnlessTheyFitMoreOften(t *testing.T) {
	all := []Fit{{Label: "1g.10gb", Count: 2}, {Label: "1g.10gb+me", Count: 1}, {Label: "2g.20gb+me", Count: 1}}
	assert.Equal(t, []Fit{all[0], all[2]}, plain(all))
	assert.Len(t, all, 3, "the argument is left alone")
}

func TestWhatFitsOnSeveralCardsIsAddedUpInOrder(t *testing.T) {
	in := Input{Slices: cards("node-a", 2, h100Card)}
	in.Claims = append(in.Claims, claim("default", "p", "node-a", 0, mig(0, "1g.10gb", 0)))
	all := sum(Build(in).Nodes[0].Cards)
	var labels []string
	for _, f := range all {
		labels = append(labels, f.Label)
	}
	assert.Equal(t, []string{wholeCard, "7g.80gb", "4g.40gb", "3g.40gb", "2g.20gb", "1g.20gb", "1g.10gb", "1g.10gb+me"}, labels)
	assert.Equal(t, 13, counts(all)["1g.10gb"])
}

func TestASharedDeviceThatIsHeldStillFits(t *testing.T) {
	total := gpu.Counters{"memory": 10}
	share := &device{name: "share", shared: true, consumes: total}
	whole := &device{name: "whole", consumes: total}
	u := usage{total: total, taken: gpu.Counters{}, held: map[string]bool{}}.with(share)
	assert.True(t, u.fits(share))
	assert.False(t, u.fits(whole))
	assert.Empty(t, fits(u, []*device{share, whole}), "room on a shared device is not a number of pieces")
}

func TestSliceIndexIsByNumber(t *testing.T) {
	index := sliceIndex(gpu.Counters{"memory-slice-10": 1, "memory-slice-2": 1, "memory-slice-": 1, "memory": 5})
	assert.Equal(t, map[string]int{"memory-slice-2": 0, "memory-slice-10": 1}, index)
}
