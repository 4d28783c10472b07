package replay

import (
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/test/packing/fleet"
	"github.com/tranche-dev/tranche/test/packing/policy"
	"github.com/tranche-dev/tranche/test/packing/workload"
)

const eightGPUs = 8

var sharedLayout = sync.OnceValues(func() (*fleet.Layout, error) {
	return fleet.Published(context.Background(), "../../../"+fleet.Chart, false)
})

func layoutOf(t *testing.T) *fleet.Layout {
	t.Helper()
	l, err := sharedLayout()
	require.NoError(t, err)
	return l
}

// ask is a claim that arrives and lives for some seconds.
func ask(kind int, arrival, life float64) *fleet.Claim {
	s := workload.Shape{Kind: kind, CPU: 1000, Memory: 1024, Life: life}
	return fleet.Claims([]workload.Claim{{Shape: s, Arrival: arrival}})[0]
}

// placer is that of a policy.
func placer(t *testing.T, name string) policy.Placer {
	t.Helper()
	for _, p := range policy.All() {
		if p.Name == name {
			return p.New(workload.Workload{}, 0)
		}
	}
	require.Fail(t, "there is no policy "+name)
	return nil
}

// spread places claims as default scoring does.
func spread(t *testing.T) policy.Placer { return placer(t, "default") }

func TestReplay(t *testing.T) {
	require.Equal(t, "8 GPUs", workload.Kinds[eightGPUs].String())
	on := &placed{Fleet: fleet.New(layoutOf(t), 1), placer: placer(t, "best-fit"), popularity: make([]float64, len(workload.Kinds))}
	on.popularity[workload.WholeGPU] = 1
	claims := []*fleet.Claim{
		ask(0, -10, 50),
		// Waits until the first and the next are gone.
		ask(eightGPUs, 0, 100),
		ask(0, 10, 2*Hour),
		ask(workload.WholeGPU, 20, 1),
		ask(0, 4*Hour, 1),
	}
	r := (&replay{on: on}).run(claims)
	assert.InDelta(t, 10+2*Hour, claims[1].Started, 0)
	assert.InDelta(t, 20, claims[3].Started, 0)
	// Measured from the second arrival on.
	assert.Equal(t, 3, r.Arrived)
	assert.Equal(t, 0, r.Delayed)
	assert.Equal(t, []int{1, 1}, []int{r.Large, r.Accepted})
	assert.InEpsilon(t, eightGPUs*2*Hour/(4*Hour-10), r.Average.Waiting.Sum(), 1e-9)
	assert.InDelta(t, r.Average.Waiting.Sum(), r.Average.Waiting[eightGPUs], 1e-9)
	assert.Equal(t, 1, r.Prompt)
	assert.InEpsilon(t, (40.0/8+2*Hour/8+1+8*100)/(4*Hour-10), r.Average.Held, 1e-9)
	assert.Len(t, r.Series, samples)
	assert.InDelta(t, 7.0/8, r.Series[1].Fragmented, 1e-9, "whole GPUs cannot use the rest of the first")
	assert.InDelta(t, 8, r.Series[1].Waiting.Sum(), 0)
	assert.Zero(t, on.Held-1.0/8)
}

// No policy lets a claim wait that fits, and all know what they hold.
func TestPoliciesPlace(t *testing.T) {
	all, err := workload.All()
	require.NoError(t, err)
	for _, p := range policy.All() {
		if p.New == nil {
			continue // see TestBound
		}
		for _, w := range all {
			t.Run(p.Name+"/"+w.Name, func(t *testing.T) {
				t.Parallel()
				const nodes = 12
				on := &placed{Fleet: fleet.New(layoutOf(t), nodes), placer: p.New(w, 1), popularity: w.Popularity()}
				r := &replay{on: on}
				if p.Moves {
					r.moves = &moves{on: on}
				}
				claims := fleet.Claims(w.Arrivals(nodes*workload.GPUsPerNode, 1.1, 500, 2))
				found := r.run(claims)
				assert.Positive(t, found.Average.Waiting.Sum())
				assert.LessOrEqual(t, found.Moved, movedShare)
				held := 0.0
				for _, c := range r.ends {
					held += c.GPUs()
				}
				assert.InDelta(t, held, on.Held, 1e-6)
				used := 0
				for i := range on.Nodes {
					empty := 0
					for _, s := range on.Nodes[i].GPUs {
						if s.Held == 0 {
							empty++
						}
					}
					assert.Equal(t, empty, on.Nodes[i].Empty)
					used += workload.GPUsPerNode - empty
				}
				assert.Equal(t, used, on.Used)
				for _, waiting := range r.waiting.of {
					for _, c := range waiting {
						for i := range on.Nodes {
							require.False(t, on.Nodes[i].Feasible(c), "%s waits and fits on node %d", workload.Kinds[c.Kind], i)
						}
					}
				}
			})
		}
	}
}

func TestBound(t *testing.T) {
	b := newBound(1)
	// 1g.20gb: four on a GPU by memory, 1g.10gb: seven by compute.
	for range 4 * workload.GPUsPerNode {
		require.True(t, b.place(ask(1, 0, 1)))
	}
	assert.False(t, b.place(ask(0, 0, 1)))
	b.release(ask(1, 0, 1))
	assert.Equal(t, uint(0b111), b.fits(nil), "the partitions with two slices of memory or fewer")
	assert.Equal(t, Sample{Used: 8, UsedNodes: 1, Held: 7.75}, b.sample())
	b = newBound(2)
	for range 7*workload.GPUsPerNode + 1 {
		require.True(t, b.place(ask(0, 0, 1)))
	}
	assert.Equal(t, Sample{Used: 9, UsedNodes: 2, Held: 57.0 / 8}, b.sample())
	// 4g.40gb: one on each GPU, beside a 3g.40gb.
	b = newBound(1)
	for range workload.GPUsPerNode {
		require.True(t, b.place(ask(4, 0, 1)))
	}
	assert.False(t, b.place(ask(4, 0, 1)))
	for range workload.GPUsPerNode {
		require.True(t, b.place(ask(3, 0, 1)))
	}
}
