package main

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/tranche-dev/tranche/test/allocator"
	"github.com/tranche-dev/tranche/test/nodes"
)

const testChart = "../../" + chart

// layoutOf is the layout that all tests share, ascendingLayout the one of the other order.
func layoutOf(t *testing.T) *layout {
	t.Helper()
	l, err := sharedLayout()
	require.NoError(t, err)
	return l
}

var sharedLayout = sync.OnceValues(func() (*layout, error) {
	return publishedLayout(context.Background(), testChart, false)
})

var ascendingLayout = sync.OnceValues(func() (*layout, error) {
	return publishedLayout(context.Background(), testChart, true)
})

// On a node with 8 GPUs in random states, the memoised answer is that of the allocator.
func TestMemoisedAnswers(t *testing.T) {
	ascending, err := ascendingLayout()
	require.NoError(t, err)
	t.Run("order of the plugin", func(t *testing.T) { compareAnswers(t, layoutOf(t), false) })
	t.Run("ascending", func(t *testing.T) { compareAnswers(t, ascending, true) })
}

func compareAnswers(t *testing.T, l *layout, ascending bool) {
	t.Helper()
	gpus, err := h100s(t.Context(), t.TempDir())
	require.NoError(t, err)
	require.Len(t, gpus, gpusPerNode)
	if ascending {
		ascend(gpus)
	}
	published, err := nodes.Slices(nodeName, gpus)
	require.NoError(t, err)
	classes, err := allocator.Classes(testChart)
	require.NoError(t, err)

	for seed := range uint64(2) {
		random := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // the same each time
		scheduler := allocator.New(classes, published)
		f := newFleet(l, 1, seed)
		type held struct {
			*claim
			grant *allocator.Grant
		}
		var all []held
		waits := 0
		for range 80 {
			if len(all) > 0 && random.IntN(3) == 0 {
				i := random.IntN(len(all))
				f.release(all[i].claim)
				scheduler.Release(all[i].grant)
				all = slices.Delete(all, i, i+1)
				continue
			}
			c := &claim{shape: shape{kind: random.IntN(len(kinds) - 1)}}
			grant, err := scheduler.Allocate(t.Context(), nodeName, allocator.Claim("claim", request(kinds[c.kind])))
			require.NoError(t, err)
			require.Equal(t, grant != nil, f.nodes[0].feasible(c), "%s on %v", kinds[c.kind], f.nodes[0].gpus)
			at, found := f.nodes[0].first(c.kind, allGPUs)
			require.Equal(t, grant != nil, found)
			if !found {
				waits++
				continue
			}
			expected := sets.New[string]()
			for g := range gpus {
				if at.gpus&(1<<g) != 0 {
					expected.Insert(gpus[g].Placements[at.device].Name())
				}
			}
			require.Equal(t, expected, sets.New(grant.Devices()...))
			f.hold(c, at)
			all = append(all, held{c, grant})
		}
		assert.Positive(t, waits, "seed %d has no full node", seed)
	}
}

func TestLayout(t *testing.T) {
	l := layoutOf(t)
	assert.Equal(t, memorySlices, l.empty.free)
	count := func(s *gpuState) (n []int) {
		for _, devices := range s.devices {
			n = append(n, len(devices))
		}
		return n
	}
	assert.Equal(t, []int{7, 4, 3, 2, 1, 1}, count(l.empty))
	four := l.empty.after[l.empty.first[4]]
	assert.Equal(t, []int{3, 2, 1, 1, 0, 0}, count(four), "4g.40gb has the first half of the memory and four slices of compute")
	assert.Equal(t, 4, four.free)
	assert.Same(t, l.empty, four.after[l.empty.first[4]])
}

func TestAscend(t *testing.T) {
	l, err := ascendingLayout()
	require.NoError(t, err)
	for k, d := range l.empty.first[:wholeGPU] {
		assert.Zero(t, l.gpu.Placements[d].Start, kinds[k])
	}
	assert.NotZero(t, layoutOf(t).gpu.Placements[layoutOf(t).empty.first[0]].Start, "the plugin's order is another")
}
