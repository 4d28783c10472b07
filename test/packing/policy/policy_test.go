package policy

import (
	"context"
	"math/bits"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/test/packing/fleet"
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

func ask(kind int) *fleet.Claim {
	s := workload.Shape{Kind: kind, CPU: 4000, Memory: 32 << 10, Life: 1}
	return fleet.Claims([]workload.Claim{{Shape: s}})[0]
}

// The claim that fragments least goes where only such claims fit.
func TestFGD(t *testing.T) {
	f := fleet.New(layoutOf(t), 2)
	mix := workload.Workload{Shapes: []workload.Shape{{Kind: 0, Weight: 1}, {Kind: 4, Weight: 1}, {Kind: eightGPUs, Weight: 1}}}
	place := fgd(mix)
	f.Hold(ask(4), place0(t, f, 4))
	at, found := place(f, ask(0))
	require.True(t, found)
	assert.Equal(t, place0(t, f, 0).GPUs, at.GPUs, "beside the 4g.40gb")
	assert.Zero(t, at.Node)
}

// place0 is the allocator's place on the first node.
func place0(t *testing.T, f *fleet.Fleet, kind int) fleet.Place {
	t.Helper()
	at, found := f.Nodes[0].First(kind, fleet.AllGPUs)
	require.True(t, found)
	return at
}

// Small claims are spread by default scoring and put together by the others.
func TestPoliciesChooseNodes(t *testing.T) {
	all, err := workload.All()
	require.NoError(t, err)
	for _, p := range All() {
		if p.New == nil || strings.HasPrefix(p.Name, "reserved") {
			continue // see TestReserved
		}
		t.Run(p.Name, func(t *testing.T) {
			f := fleet.New(layoutOf(t), 20)
			place := p.New(all[0], 1)
			for range 14 {
				c := ask(0)
				at, found := place(f, c)
				require.True(t, found)
				f.Hold(c, at)
			}
			if strings.HasPrefix(p.Name, "default") || p.Ascending {
				assert.Equal(t, []int{14, 14}, []int{f.Used, f.UsedNodes})
			} else {
				assert.Equal(t, []int{2, 1}, []int{f.Used, f.UsedNodes})
			}
		})
	}
}

func TestBestFitKeepsLargePlacements(t *testing.T) {
	f := fleet.New(layoutOf(t), 1)
	place := bestFit()
	for range 7 {
		c := ask(0)
		at, found := place(f, c)
		require.True(t, found)
		f.Hold(c, at)
	}
	assert.Equal(t, 1, f.Used)
	c := ask(4)
	at, _ := place(f, c)
	f.Hold(c, at)
	at, _ = place(f, ask(3))
	assert.Equal(t, c.Place.GPUs, at.GPUs, "beside the 4g.40gb")
}

func TestNodesToFind(t *testing.T) {
	for nodes, want := range map[int]int{50: 50, 100: 100, 300: 144, 1500: 570, 10000: 500} {
		assert.Equal(t, want, nodesToFind(nodes), nodes)
	}
}

// Partitions stay out of what is kept until nothing else has room.
func TestReserved(t *testing.T) {
	for name, keep := range map[string]kept{"GPUs": lastGPUs(7), "nodes": someNodes(1)} {
		t.Run(name, func(t *testing.T) {
			f := fleet.New(layoutOf(t), 2)
			place := reserved(leastAllocated, keep)(workload.Workload{}, 0)
			at, found := place(f, ask(workload.WholeGPU))
			require.True(t, found)
			assert.NotZero(t, keep(at.Node)&at.GPUs)
			others := 0
			for node := range 2 {
				others += workload.GPUsPerNode - bits.OnesCount(keep(node))
			}
			for i := range 7*others + 1 {
				c := ask(0)
				at, found = place(f, c)
				require.True(t, found)
				assert.Equal(t, i == 7*others, keep(at.Node)&at.GPUs != 0, "claim %d", i)
				f.Hold(c, at)
			}
		})
	}
}
