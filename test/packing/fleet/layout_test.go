package fleet

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
	"github.com/tranche-dev/tranche/test/packing/workload"
)

const testChart = "../../../" + Chart

// layoutOf is the layout that all tests share, ascendingLayout the one of the other order.
func layoutOf(t *testing.T) *Layout {
	t.Helper()
	l, err := sharedLayout()
	require.NoError(t, err)
	return l
}

var sharedLayout = sync.OnceValues(func() (*Layout, error) {
	return Published(context.Background(), testChart, false)
})

var ascendingLayout = sync.OnceValues(func() (*Layout, error) {
	return Published(context.Background(), testChart, true)
})

// On a node with 8 GPUs in random states, the memoised answer is that of the allocator.
func TestMemoisedAnswers(t *testing.T) {
	ascending, err := ascendingLayout()
	require.NoError(t, err)
	t.Run("order of the plugin", func(t *testing.T) { compareAnswers(t, layoutOf(t), false) })
	t.Run("ascending", func(t *testing.T) { compareAnswers(t, ascending, true) })
}

func compareAnswers(t *testing.T, l *Layout, ascending bool) {
	t.Helper()
	gpus, err := h100s(t.Context(), t.TempDir())
	require.NoError(t, err)
	require.Len(t, gpus, workload.GPUsPerNode)
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
		f := New(l, 1)
		type held struct {
			*Claim
			grant *allocator.Grant
		}
		var all []held
		waits := 0
		for range 80 {
			if len(all) > 0 && random.IntN(3) == 0 {
				i := random.IntN(len(all))
				f.Release(all[i].Claim)
				scheduler.Release(all[i].grant)
				all = slices.Delete(all, i, i+1)
				continue
			}
			c := &Claim{Claim: workload.Claim{Shape: workload.Shape{Kind: random.IntN(len(workload.Kinds) - 1)}}}
			grant, err := scheduler.Allocate(t.Context(), nodeName, allocator.Claim("claim", Request(workload.Kinds[c.Kind])))
			require.NoError(t, err)
			require.Equal(t, grant != nil, f.Nodes[0].Feasible(c), "%s on %v", workload.Kinds[c.Kind], f.Nodes[0].GPUs)
			at, found := f.Nodes[0].First(c.Kind, AllGPUs)
			require.Equal(t, grant != nil, found)
			if !found {
				waits++
				continue
			}
			expected := sets.New[string]()
			for g := range gpus {
				if at.GPUs&(1<<g) != 0 {
					expected.Insert(gpus[g].Placements[at.Device].Name())
				}
			}
			require.Equal(t, expected, sets.New(grant.Devices()...))
			f.Hold(c, at)
			all = append(all, held{c, grant})
		}
		assert.Positive(t, waits, "seed %d has no full node", seed)
	}
}

func TestLayout(t *testing.T) {
	l := layoutOf(t)
	assert.Equal(t, workload.MemorySlices, l.Empty.Free)
	count := func(s *State) (n []int) {
		for _, devices := range s.Devices {
			n = append(n, len(devices))
		}
		return n
	}
	assert.Equal(t, []int{7, 4, 3, 2, 1, 1}, count(l.Empty))
	four := l.Empty.After[l.Empty.First[4]]
	assert.Equal(t, []int{3, 2, 1, 1, 0, 0}, count(four), "4g.40gb has the first half of the memory and four slices of compute")
	assert.Equal(t, 4, four.Free)
	assert.Same(t, l.Empty, four.After[l.Empty.First[4]])
}

func TestAscend(t *testing.T) {
	l, err := ascendingLayout()
	require.NoError(t, err)
	for k, d := range l.Empty.First[:workload.WholeGPU] {
		assert.Zero(t, l.GPU.Placements[d].Start, workload.Kinds[k])
	}
	assert.NotZero(t, layoutOf(t).GPU.Placements[layoutOf(t).Empty.First[0]].Start, "the plugin's order is another")
}
