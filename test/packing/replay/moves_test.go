package replay

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/test/packing/fleet"
	"github.com/tranche-dev/tranche/test/packing/workload"
)

// hold places claims of kinds on a GPU of a node as the allocator would.
func hold(t *testing.T, f *fleet.Fleet, node, gpu int, all ...int) {
	t.Helper()
	for _, k := range all {
		at, found := f.Nodes[node].First(k, 1<<gpu)
		require.True(t, found, workload.Kinds[k])
		at.Node = node
		f.Hold(ask(k, 0, 1), at)
	}
}

// The first node has whole GPUs beside what each case says. The second has room for a few small
// partitions, or for nothing.
func TestMoves(t *testing.T) {
	const small, medium, third, half = 0, 2, 3, 4
	for _, test := range []struct {
		name  string
		gpus  [][]int
		kind  int
		full  bool
		moved int
	}{
		{name: "two pods for a partition", gpus: [][]int{{half, small, small}}, kind: third, moved: 2},
		{name: "two pods for a GPU", gpus: [][]int{{medium, medium}}, kind: workload.WholeGPU, moved: 2},
		{name: "the GPU with the fewest pods", gpus: [][]int{{small, small}, {medium}}, kind: workload.WholeGPU, moved: 1},
		{name: "two GPUs", gpus: [][]int{{small}, {half}, {medium}}, kind: workload.WholeGPU + 1, moved: 2},
		{name: "one is empty", gpus: [][]int{{small}, {}, {half}}, kind: workload.WholeGPU + 1, moved: 1},
		{name: "five pods are too many", gpus: [][]int{{small, small, small, small, small}}, kind: workload.WholeGPU},
		{name: "three GPUs are too many", gpus: [][]int{{small}, {}, {small}, {small}}, kind: workload.WholeGPU + 2},
		{name: "a large partition for a GPU", gpus: [][]int{{third}}, kind: workload.WholeGPU, moved: 1},
		{name: "a partition of the same size stays", gpus: [][]int{{half}}, kind: half},
		{name: "small claims wait", gpus: [][]int{{half, small, small}}, kind: medium},
		{name: "no other place", gpus: [][]int{{small}}, kind: workload.WholeGPU, full: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			on := &placed{Fleet: fleet.New(layoutOf(t), 2), placer: spread(t)}
			for g := range workload.GPUsPerNode {
				if g < len(test.gpus) {
					hold(t, on.Fleet, 0, g, test.gpus[g]...)
				} else {
					hold(t, on.Fleet, 0, g, workload.WholeGPU)
				}
				if g == 0 && !test.full {
					hold(t, on.Fleet, 1, g, third)
				} else {
					hold(t, on.Fleet, 1, g, workload.WholeGPU)
				}
			}
			before, held := on.sample(), workload.Kinds[test.kind].GPUs()
			c, m := ask(test.kind, 0, 1), &moves{on: on, arrived: 200}
			require.Equal(t, test.moved > 0, m.place(c, 0, 2))
			assert.Equal(t, test.moved, m.moved)
			if test.moved == 0 {
				assert.Equal(t, before, on.sample(), "nothing changed")
				return
			}
			assert.InDelta(t, before.Held+held, on.Held, 1e-9)
			assert.Zero(t, c.Place.Node)
			assert.Len(t, on.Nodes[1].Claims, workload.GPUsPerNode+test.moved, "the pods are on the other node")
		})
	}
}

// Of 100 claims that arrive, one may move.
func TestMovedShare(t *testing.T) {
	on := &placed{Fleet: fleet.New(layoutOf(t), 2), placer: spread(t)}
	for g := range workload.GPUsPerNode {
		hold(t, on.Fleet, 0, g, 0)
		hold(t, on.Fleet, 1, g, 4)
	}
	m := &moves{on: on, arrived: 99}
	assert.False(t, m.place(ask(workload.WholeGPU, 0, 1), 0, 2))
	m.arrived = 199
	assert.True(t, m.place(ask(workload.WholeGPU, 0, 1), 0, 2))
	assert.False(t, m.place(ask(workload.WholeGPU, 0, 1), 0, 2))
	m.arrived = 200
	assert.True(t, m.place(ask(workload.WholeGPU, 0, 1), 0, 2))
}
