package workload

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

// Workload is a mix of claims that arrive independently of each other.
type Workload struct {
	Name   string
	Shapes []Shape
}

// All are the trace and the synthetic mixes.
func All() ([]Workload, error) {
	trace, err := readTable(strings.NewReader(traceTable))
	if err != nil {
		return nil, fmt.Errorf("the trace's table: %w", err)
	}
	return []Workload{
		{"trace", trace},
		// Inference: many small servers that come and go, and some large ones.
		{"inference", mix([]row{
			{"1g.10gb", 50, 2, 20}, {"1g.20gb", 15, 3, 30}, {"2g.20gb", 15, 4, 30},
			{"3g.40gb", 10, 8, 60}, {"4g.40gb", 3, 8, 60}, {"GPU", 7, 16, 120},
		})},
		// Notebooks of half a working day, beside training on whole GPUs.
		{"notebooks", mix([]row{
			{"1g.10gb", 30, 4, 240}, {"2g.20gb", 25, 4, 240}, {"3g.40gb", 15, 8, 360},
			{"GPU", 20, 16, 480}, {"2 GPUs", 5, 32, 480}, {"8 GPUs", 5, 96, 720},
		})},
		// Few large claims among many small ones: 5 of 100.
		{"few-large", mix([]row{
			{"1g.10gb", 70, 2, 20}, {"1g.20gb", 10, 3, 30}, {"2g.20gb", 15, 4, 30},
			{"3g.40gb", 3, 8, 60}, {"GPU", 2, 16, 120},
		})},
	}, nil
}

// row is a shape of a mix: its share of the claims in percent, the CPUs of its pods, and its
// lifetime in minutes. Pods request 8 GiB of memory for each CPU.
type row struct {
	kind                string
	share, cpu, minutes float64
}

func mix(rows []row) (all []Shape) {
	for _, r := range rows {
		k := slices.IndexFunc(Kinds[:], func(k Kind) bool { return k.String() == r.kind })
		all = append(all, Shape{Kind: k, Weight: r.share, CPU: int64(1000 * r.cpu), Memory: int64(8 * 1024 * r.cpu), Life: 60 * r.minutes})
	}
	return all
}

// Claim is a claim that arrives, with its pod.
type Claim struct {
	Shape
	// Arrival is in seconds since the start of the replay.
	Arrival float64
}

// Arrivals are the claims of a replay in order of their arrival: those that a fleet of so many
// GPUs holds at this load when the replay begins (their arrivals are negative, and their lifetimes
// are what is left), and count more. A load of 0.8 means that the GPU memory that the claims
// demand is 80 % of that of the fleet on average.
func (w Workload) Arrivals(gpus, load float64, count int, seed uint64) []Claim {
	random := rand.New(rand.NewPCG(seed, 17)) //nolint:gosec // the same each time
	var weights, busy, demand float64
	// Claims arrive in proportion to weight, and exist in proportion to weight × life.
	arriving, existing := make([]float64, len(w.Shapes)), make([]float64, len(w.Shapes))
	for i, s := range w.Shapes {
		weights += s.Weight
		busy += s.Weight * s.Life
		demand += s.Weight * s.Life * Kinds[s.Kind].GPUs()
		arriving[i], existing[i] = weights, busy
	}
	pick := func(sums []float64) Shape {
		return w.Shapes[sort.SearchFloat64s(sums, random.Float64()*sums[len(sums)-1])]
	}
	var all []Claim
	for held := 0.0; held < load*gpus; {
		s := pick(existing)
		age := random.Float64() * s.Life
		s.Life -= age
		held += Kinds[s.Kind].GPUs()
		all = append(all, Claim{s, -age})
	}
	slices.SortFunc(all, func(a, b Claim) int {
		if a.Arrival < b.Arrival {
			return -1
		}
		return 1
	})
	perSecond := load * gpus / (demand / weights)
	now := 0.0
	for range count {
		now += random.ExpFloat64() / perSecond
		all = append(all, Claim{pick(arriving), now})
	}
	return all
}

// Popularity is the share of each kind among the claims that arrive.
func (w Workload) Popularity() []float64 {
	all := make([]float64, len(Kinds))
	sum := 0.0
	for _, s := range w.Shapes {
		all[s.Kind] += s.Weight
		sum += s.Weight
	}
	for i := range all {
		all[i] /= sum
	}
	return all
}
