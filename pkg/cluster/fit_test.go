package cluster_test

import (
	"maps"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/tranche-dev/tranche/pkg/cluster"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/test/scenes"
)

// most finds the greatest number of devices of a kind by trying everything.
func most(p *cluster.Pool, taken gpu.Counters, of []*cluster.Device) int {
	if len(of) == 0 {
		return 0
	}
	best := most(p, taken, of[1:])
	if d := of[0]; !d.Held() && len(p.Short(d, taken)) == 0 {
		with := maps.Clone(taken)
		with.Add(d.Consumes)
		best = max(best, 1+most(p, with, of[1:]))
	}
	return best
}

// Whatever is held, the greedy count is what the scheduler could really place.
func TestGreedyCountsAreTheBest(t *testing.T) {
	for name, slices := range map[string][]resourceapi.ResourceSlice{"H100": scenes.H100("node-a", 0), "MI300X": scenes.MI300X("node-a", 0)} {
		t.Run(name, func(t *testing.T) { greedyCountsAreTheBest(t, slices) })
	}
}

func greedyCountsAreTheBest(t *testing.T, published []resourceapi.ResourceSlice) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		in := scenes.Scene{Objects: cluster.Objects{Slices: published}}
		p := cluster.New(in.Objects).Pools[0]
		for range random.IntN(5) {
			if d := p.Devices[random.IntN(len(p.Devices))]; p.Fits(d) {
				in.Claims = append(in.Claims, scenes.Claim("default", d.Name, "node-a", 0, d.Name))
				p = cluster.New(in.Objects).Pools[0]
			}
		}
		kinds := map[string][]*cluster.Device{}
		for _, d := range p.Devices {
			if d.Type != gpu.TypeMonitor {
				kinds[d.Label] = append(kinds[d.Label], d)
			}
		}
		got := counts(only(t, in).Fits)
		for label, of := range kinds {
			assert.Equal(t, most(p, p.Taken, of), got[label], "%s beside %v", label, in.Claims)
		}
	}
}

func TestVariantsAreLeftOutUnlessTheyFitMoreOften(t *testing.T) {
	var all []cluster.Fit
	for i, label := range []string{"1g.10gb", "1g.10gb+me", "2g.20gb+me"} {
		all = append(all, cluster.Fit{DeviceKind: cluster.DeviceKind{Label: label}, Count: max(1, 2-i)})
	}
	assert.Equal(t, []cluster.Fit{all[0], all[2]}, cluster.Plain(all))
	assert.Len(t, all, 3, "the argument is left alone")
}

func TestWhatFitsOnSeveralGPUsIsAddedUpInOrder(t *testing.T) {
	in := scenes.Scene{Objects: cluster.Objects{Slices: scenes.GPUs("node-a", 2, scenes.H100)}}
	in.Claims = append(in.Claims, scenes.Claim("default", "p", "node-a", 0, scenes.MIG(0, "1g.10gb", 0)))
	all := cluster.Sum(in.Summary().Nodes[0].GPUs)
	var labels []string
	for _, f := range all {
		labels = append(labels, f.Label)
	}
	assert.Equal(t, []string{cluster.WholeGPU, "7g.80gb", "4g.40gb", "3g.40gb", "2g.20gb", "1g.20gb", "1g.10gb", "1g.10gb+me"}, labels)
	assert.Equal(t, 13, counts(all)["1g.10gb"])
}

func TestASharedDeviceThatIsHeldStillFits(t *testing.T) {
	in := scenes.Shared()
	c := cluster.New(in.Objects)
	p := c.Pools[0]
	for _, d := range p.Devices[:len(p.Devices)-1] { // the last is that for monitors
		assert.Equal(t, d.Held(), p.Fits(d), "%s beside the memory share", d.Name)
	}
	assert.Empty(t, in.Summary().Nodes[0].GPUs[0].Fits, "room on a shared device is not a number of pieces")
}
