package main

import (
	_ "embed"
	"fmt"
	"math/rand/v2"
	"slices"
	"sort"
	"strings"
)

//go:embed testdata/trace.csv
var traceTable string

// workload is a mix of claims that arrive independently of each other.
type workload struct {
	name   string
	shapes []shape
}

// workloads are the trace and two synthetic mixes.
func workloads() ([]workload, error) {
	trace, err := readTable(strings.NewReader(traceTable))
	if err != nil {
		return nil, fmt.Errorf("the trace's table: %w", err)
	}
	// mix has for each kind of claim its weight, its CPUs and its lifetime in minutes.
	mix := func(rows ...[4]float64) (all []shape) {
		for _, r := range rows {
			all = append(all, shape{
				kind: int(r[0]), weight: r[1], cpu: int64(1000 * r[2]), memory: int64(8 * 1024 * r[2]), life: 60 * r[3],
			})
		}
		return all
	}
	return []workload{
		{"trace", trace},
		// Inference: many small servers that come and go, and some large ones.
		{"inference", mix([4]float64{0, 50, 2, 20}, [4]float64{1, 15, 3, 30}, [4]float64{2, 15, 4, 30},
			[4]float64{3, 10, 8, 60}, [4]float64{4, 3, 8, 60}, [4]float64{wholeGPU, 7, 16, 120})},
		// Notebooks of half a working day, beside training on whole GPUs.
		{"notebooks", mix([4]float64{0, 30, 4, 240}, [4]float64{2, 25, 4, 240}, [4]float64{3, 15, 8, 360},
			[4]float64{wholeGPU, 20, 16, 480}, [4]float64{wholeGPU + 1, 5, 32, 480}, [4]float64{wholeGPU + 3, 5, 96, 720})},
	}, nil
}

// claim is one claim of a replay, with its pod. Times are in seconds since the start of the
// replay.
type claim struct {
	shape
	arrival float64
	// started is negative until the claim has its devices.
	started float64
	at      place
}

// arrivals are the claims of a replay in order of their arrival: those that a fleet of so many
// GPUs holds at this load when the replay begins (their arrivals are negative, and their lifetimes
// are what is left), and count more. A load of 0.8 means that the GPU memory that the claims
// demand is 80 % of that of the fleet on average.
func (w workload) arrivals(gpus, load float64, count int, seed uint64) []*claim {
	random := rand.New(rand.NewPCG(seed, 17)) //nolint:gosec // the same each time
	var weights, busy, demand float64
	// Claims arrive in proportion to weight, and exist in proportion to weight × life.
	arriving, existing := make([]float64, len(w.shapes)), make([]float64, len(w.shapes))
	for i, s := range w.shapes {
		weights += s.weight
		busy += s.weight * s.life
		demand += s.weight * s.life * kinds[s.kind].gpus()
		arriving[i], existing[i] = weights, busy
	}
	pick := func(sums []float64) shape {
		return w.shapes[sort.SearchFloat64s(sums, random.Float64()*sums[len(sums)-1])]
	}
	var all []*claim
	for held := 0.0; held < load*gpus; {
		s := pick(existing)
		age := random.Float64() * s.life
		s.life -= age
		held += kinds[s.kind].gpus()
		all = append(all, &claim{shape: s, arrival: -age, started: -1})
	}
	slices.SortFunc(all, func(a, b *claim) int {
		if a.arrival < b.arrival {
			return -1
		}
		return 1
	})
	perSecond := load * gpus / (demand / weights)
	now := 0.0
	for range count {
		now += random.ExpFloat64() / perSecond
		s := pick(arriving)
		all = append(all, &claim{shape: s, arrival: now, started: -1})
	}
	return all
}

// popularity is the share of each kind among the claims that arrive.
func (w workload) popularity() []float64 {
	all := make([]float64, len(kinds))
	sum := 0.0
	for _, s := range w.shapes {
		all[s.kind] += s.weight
		sum += s.weight
	}
	for i := range all {
		all[i] /= sum
	}
	return all
}
