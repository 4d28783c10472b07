package main

import (
	"math/bits"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// hold places claims of kinds on a GPU of a node as the allocator would.
func hold(t *testing.T, f *fleet, node, gpu int, all ...int) {
	t.Helper()
	for _, k := range all {
		at, found := f.nodes[node].first(k, 1<<gpu)
		require.True(t, found, kinds[k])
		at.node = node
		f.hold(ask(k, 0, 1), at)
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
		{name: "two pods for a GPU", gpus: [][]int{{half}, {small, medium}}, kind: wholeGPU, moved: 2},
		{name: "the GPU with the fewest pods", gpus: [][]int{{small, small}, {medium}}, kind: wholeGPU, moved: 1},
		{name: "two GPUs", gpus: [][]int{{small}, {half}, {medium}}, kind: wholeGPU + 1, moved: 2},
		{name: "one is empty", gpus: [][]int{{small}, {}, {half}}, kind: wholeGPU + 1, moved: 1},
		{name: "three pods are too many", gpus: [][]int{{small, small, small}}, kind: wholeGPU},
		{name: "three GPUs are too many", gpus: [][]int{{small}, {}, {small}, {small}}, kind: wholeGPU + 2},
		{name: "large partitions stay", gpus: [][]int{{half}}, kind: wholeGPU},
		{name: "small claims wait", gpus: [][]int{{half, small, small}}, kind: medium},
		{name: "no other place", gpus: [][]int{{small}}, kind: wholeGPU, full: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			on := &placed{fleet: newFleet(layoutOf(t), 2, 0), placer: scheduled(leastAllocated)}
			for g := range gpusPerNode {
				if g < len(test.gpus) {
					hold(t, on.fleet, 0, g, test.gpus[g]...)
				} else {
					hold(t, on.fleet, 0, g, wholeGPU)
				}
				if g == 0 && !test.full {
					hold(t, on.fleet, 1, g, third)
				} else {
					hold(t, on.fleet, 1, g, wholeGPU)
				}
			}
			before, held := on.sample(false), kinds[test.kind].gpus()
			c, m := ask(test.kind, 0, 1), &moves{on: on, arrived: 200}
			require.Equal(t, test.moved > 0, m.place(c, 0, 2))
			assert.Equal(t, test.moved, m.moved)
			if test.moved == 0 {
				assert.Equal(t, before, on.sample(false), "nothing changed")
				return
			}
			assert.InDelta(t, before.held+held, on.held, 1e-9)
			assert.Zero(t, c.at.node)
			assert.Len(t, on.nodes[1].claims, gpusPerNode+test.moved, "the pods are on the other node")
		})
	}
}

// Of 100 claims that arrive, one may move.
func TestMovedShare(t *testing.T) {
	on := &placed{fleet: newFleet(layoutOf(t), 2, 0), placer: scheduled(leastAllocated)}
	for g := range gpusPerNode {
		hold(t, on.fleet, 0, g, 0)
		hold(t, on.fleet, 1, g, 4)
	}
	m := &moves{on: on, arrived: 99}
	assert.False(t, m.place(ask(wholeGPU, 0, 1), 0, 2))
	m.arrived = 199
	assert.True(t, m.place(ask(wholeGPU, 0, 1), 0, 2))
	assert.False(t, m.place(ask(wholeGPU, 0, 1), 0, 2))
	m.arrived = 200
	assert.True(t, m.place(ask(wholeGPU, 0, 1), 0, 2))
}

// Partitions stay out of what is kept until nothing else has room.
func TestReserved(t *testing.T) {
	for name, keep := range map[string]kept{"GPUs": lastGPUs(7), "nodes": someNodes(1)} {
		t.Run(name, func(t *testing.T) {
			f := newFleet(layoutOf(t), 2, 0)
			place := reserved(leastAllocated, keep)
			at, found := place(f, ask(wholeGPU, 0, 1))
			require.True(t, found)
			assert.NotZero(t, keep(at.node)&at.gpus)
			others := 0
			for node := range 2 {
				others += gpusPerNode - bits.OnesCount(keep(node))
			}
			for i := range 7*others + 1 {
				c := ask(0, 0, 1)
				at, found = place(f, c)
				require.True(t, found)
				assert.Equal(t, i == 7*others, keep(at.node)&at.gpus != 0, "claim %d", i)
				f.hold(c, at)
			}
		})
	}
}
