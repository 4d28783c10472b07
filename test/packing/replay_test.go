package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const eightGPUs = 8

// ask is a claim that arrives and lives for some seconds.
func ask(kind int, arrival, life float64) *claim {
	return &claim{shape: shape{kind: kind, cpu: 1000, memory: 1024, life: life, weight: 1}, arrival: arrival, started: -1}
}

func TestReplay(t *testing.T) {
	require.Equal(t, "8 GPUs", kinds[eightGPUs].String())
	on := &placed{fleet: newFleet(layoutOf(t), 1, 0), placer: bestFit(), popularity: make([]float64, len(kinds))}
	on.popularity[wholeGPU] = 1
	claims := []*claim{
		ask(0, -10, 50),
		// Waits until the first and the next are gone.
		ask(eightGPUs, 0, 100),
		ask(0, 10, 2*hour),
		ask(wholeGPU, 20, 1),
		ask(0, 4*hour, 1),
	}
	r := (&replay{on: on}).run(claims)
	assert.InDelta(t, 10+2*hour, claims[1].started, 0)
	assert.InDelta(t, 20, claims[3].started, 0)
	// Measured from the second arrival on.
	assert.Equal(t, 3, r.arrived)
	assert.Equal(t, 0, r.delayed)
	assert.Equal(t, []int{1, 1}, []int{r.large, r.accepted})
	assert.InEpsilon(t, eightGPUs*2*hour/(4*hour-10), r.average.waiting, 1e-9)
	assert.InDelta(t, r.average.waiting, r.waiting[eightGPUs], 1e-9)
	assert.Equal(t, 1, r.prompt)
	assert.InEpsilon(t, (40.0/8+2*hour/8+1+8*100)/(4*hour-10), r.average.held, 1e-9)
	assert.Len(t, r.series, samples)
	assert.InDelta(t, 7.0/8, r.series[1].pinched, 1e-9, "whole GPUs cannot use the rest of the first")
	assert.InDelta(t, 8, r.series[1].waiting, 0)
	assert.Zero(t, on.held-1.0/8)
}

// No policy lets a claim wait that fits, and all know what they hold.
func TestPoliciesPlace(t *testing.T) {
	all, err := workloads()
	require.NoError(t, err)
	for _, p := range placing() {
		for _, w := range all {
			t.Run(p.name+"/"+w.name, func(t *testing.T) {
				t.Parallel()
				const nodes = 12
				on := &placed{fleet: newFleet(layoutOf(t), nodes, 1), placer: p.placer(w), popularity: w.popularity()}
				r := &replay{on: on}
				if p.moves {
					r.moves = &moves{on: on}
				}
				claims := w.arrivals(nodes*gpusPerNode, 1.1, 500, 2)
				found := r.run(claims)
				assert.Positive(t, found.average.waiting)
				assert.LessOrEqual(t, found.moved, movedShare)
				held := 0.0
				for _, c := range r.ends {
					held += kinds[c.kind].gpus()
				}
				assert.InDelta(t, held, on.held, 1e-6)
				used := 0
				for i := range on.nodes {
					empty := 0
					for _, s := range on.nodes[i].gpus {
						if s.held == 0 {
							empty++
						}
					}
					assert.Equal(t, empty, on.nodes[i].empty)
					used += gpusPerNode - empty
				}
				assert.Equal(t, used, on.used)
				for _, waiting := range r.waiting.of {
					for _, c := range waiting {
						for i := range on.nodes {
							require.False(t, on.nodes[i].feasible(c), "%s waits and fits on node %d", kinds[c.kind], i)
						}
					}
				}
			})
		}
	}
}

// placing are the policies that place claims: all but the bound.
func placing() []policy {
	return slices.DeleteFunc(policies(4), func(p policy) bool { return p.placer == nil })
}

func TestBound(t *testing.T) {
	b := newBound(1)
	// 1g.20gb: four on a GPU by memory, 1g.10gb: seven by compute.
	for range 4 * gpusPerNode {
		require.True(t, b.place(ask(1, 0, 1)))
	}
	assert.False(t, b.place(ask(0, 0, 1)))
	b.release(ask(1, 0, 1))
	assert.Equal(t, uint(0b111), b.fits(nil), "the partitions with two slices of memory or fewer")
	assert.Equal(t, sample{used: 8, usedNodes: 1, held: 7.75}, b.sample(true))
	b = newBound(2)
	for range 7*gpusPerNode + 1 {
		require.True(t, b.place(ask(0, 0, 1)))
	}
	assert.Equal(t, sample{used: 9, usedNodes: 2, held: 57.0 / 8}, b.sample(true))
}

// The claim that fragments least goes where only such claims fit.
func TestFGD(t *testing.T) {
	f := newFleet(layoutOf(t), 2, 0)
	mix := workload{shapes: []shape{{kind: 0, weight: 1}, {kind: 4, weight: 1}, {kind: eightGPUs, weight: 1}}}
	place := fgd(mix)
	f.hold(ask(4, 0, 1), place0(t, f, 4))
	at, found := place(f, ask(0, 0, 1))
	require.True(t, found)
	assert.Equal(t, place0(t, f, 0).gpus, at.gpus, "beside the 4g.40gb")
	assert.Zero(t, at.node)
}

// place0 is the allocator's place on the first node.
func place0(t *testing.T, f *fleet, kind int) place {
	t.Helper()
	at, found := f.nodes[0].first(kind, allGPUs)
	require.True(t, found)
	return at
}

// Small claims are spread by default scoring and put together by the others.
func TestPoliciesChooseNodes(t *testing.T) {
	all, err := workloads()
	require.NoError(t, err)
	for _, p := range placing() {
		if strings.HasPrefix(p.name, "reserved") {
			continue // see TestReserved
		}
		t.Run(p.name, func(t *testing.T) {
			f := newFleet(layoutOf(t), 20, 1)
			place := p.placer(all[0])
			for range 14 {
				c := ask(0, 0, 1)
				c.cpu, c.memory = 4000, 32<<10
				at, found := place(f, c)
				require.True(t, found)
				f.hold(c, at)
			}
			if strings.HasPrefix(p.name, "default") || p.ascending {
				assert.Equal(t, []int{14, 14}, []int{f.used, f.usedNodes})
			} else {
				assert.Equal(t, []int{2, 1}, []int{f.used, f.usedNodes})
			}
		})
	}
}

func TestBestFitKeepsLargePlacements(t *testing.T) {
	f := newFleet(layoutOf(t), 1, 0)
	place := bestFit()
	for range 7 {
		c := ask(0, 0, 1)
		at, found := place(f, c)
		require.True(t, found)
		f.hold(c, at)
	}
	assert.Equal(t, 1, f.used)
	c := ask(4, 0, 1)
	at, _ := place(f, c)
	f.hold(c, at)
	at, _ = place(f, ask(3, 0, 1))
	assert.Equal(t, c.at.gpus, at.gpus, "beside the 4g.40gb")
}

func TestNodesToFind(t *testing.T) {
	for nodes, want := range map[int]int{50: 50, 100: 100, 300: 144, 1500: 570, 10000: 500} {
		assert.Equal(t, want, nodesToFind(nodes), nodes)
	}
}

func TestReport(t *testing.T) {
	s := settings{nodes: 1, loads: []float64{0.8}}
	p := policies(4)[:1]
	r := func(held float64) result {
		return result{average: sample{held: held, waiting: 1, used: 5, usedNodes: 1, pinched: 0.4}, arrived: 4, delayed: 1, early: 2, late: 1, large: 4, accepted: 3, prompt: 2, moved: 0.005,
			waiting: [mostKinds]float64{wholeGPU: 0.5, eightGPUs: 0.5}, changes: 2}
	}
	var b strings.Builder
	writeReport(&b, s, workload{name: "mix"}, p, map[scenario][]result{{"mix", "default", 0.8}: {r(4), r(3)}})
	assert.Contains(t, b.String(), "| 0.80 | default | 22.5 % | 25.00 % | 50.00 % | 75.00 % | 50.00 % | 0.50 % | 43.8 % | 5 | 1 | 5.0 % | 0.50 |\n")
	assert.Contains(t, b.String(), "| 0.80 | default | 0.00 % | 0.00 % | 0.00 % | 0.00 % | 0.00 % | 11.25 % | 0.00 % | 0.00 % | 11.25 % |\n")
}
