package main

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/test/allocator"
	"github.com/tranche-dev/tranche/test/figures"
)

const (
	// churnLoad is the part of the GPUs' compute slices that would be in use
	// if no claim were refused.
	churnLoad = 0.8
	// churnClaims arrive with each seed.
	churnClaims = 2000
	// computeSlices of a GPU can be allocated.
	computeSlices = 7
	// mostRefusals is how many more of the claims for the partition with the only engine may
	// be refused because they are offered few positions, in percent.
	mostRefusals = 3
)

var churnSeeds = []uint64{1, 2, 3}

// wish is what some claims of a churn ask for.
type wish struct {
	profile string
	slices  float64
	// share is their part of the load.
	share float64
}

var (
	// churnMix is half of the load by small partitions and half by large ones.
	churnMix = []wish{{"1g.10gb", 1, 0.5}, {"4g.40gb", 4, 0.5}}
	// mediaMix also has claims for the partition with the only engine of a GPU, last.
	mediaMix = []wish{{"1g.10gb", 1, 0.45}, {"4g.40gb", 4, 0.45}, {"1g.10gb+me", 1, 0.1}}
)

// churnFigures: the order of the devices decides what a cut GPU can still give.
func (b *bench) churnFigures() []figures.Figure {
	return []figures.Figure{{
		Name:    fmt.Sprintf("refusals in a churn of 1g and 4g at load %.1f, against ascending starts", churnLoad),
		Limit:   figures.Below(1, "×"),
		Measure: b.countRefusals,
	}, {
		Name:    fmt.Sprintf("further refusals of 1g+me because of few positions, in a churn with 1g and 4g at load %.1f", churnLoad),
		Limit:   figures.AtMost(mostRefusals, "%"),
		Measure: b.countMediaRefusals,
	}}
}

func (b *bench) countRefusals(ctx context.Context) (figures.Reading, error) {
	gpus, err := b.gpusOf(ctx, "h100x8")
	if err != nil {
		return figures.Reading{}, err
	}
	ours, err := churns(ctx, gpus, churnMix)
	if err != nil {
		return figures.Reading{}, err
	}
	ascending, err := churns(ctx, withAscendingStarts(gpus), churnMix)
	if err != nil {
		return figures.Reading{}, err
	}
	n, of := ours[0].refused+ours[1].refused, ascending[0].refused+ascending[1].refused
	return figures.Reading{
		Value: float64(n) / float64(of),
		Seen:  fmt.Sprintf("%d against %d of %d claims, %d seeds", n, of, churnClaims*len(churnSeeds), len(churnSeeds)),
	}, nil
}

// countMediaRefusals: claims are offered few positions of the partition with the only engine.
func (b *bench) countMediaRefusals(ctx context.Context) (figures.Reading, error) {
	gpus, err := b.gpusOf(ctx, "h100x8")
	if err != nil {
		return figures.Reading{}, err
	}
	ours, err := churns(ctx, gpus, mediaMix)
	if err != nil {
		return figures.Reading{}, err
	}
	all, err := churns(ctx, withAllPositions(gpus), mediaMix)
	if err != nil {
		return figures.Reading{}, err
	}
	n, least, of := ours[2].refused, all[2].refused, all[2].asked
	return figures.Reading{
		Value: 100 * float64(n-least) / float64(of),
		Seen:  fmt.Sprintf("%d against %d of %d claims for it, %d seeds", n, least, of, len(churnSeeds)),
	}, nil
}

// withAllPositions are the same GPUs, with all positions offered to claims.
func withAllPositions(gpus []gpu.GPU) []gpu.GPU {
	gpus = slices.Clone(gpus)
	for i := range gpus {
		gpus[i].Placements = slices.Clone(gpus[i].Placements)
		for j := range gpus[i].Placements {
			gpus[i].Placements[j].StaticOnly = false
		}
	}
	return gpus
}

// withAscendingStarts are the same GPUs, the placements of each profile from
// the lowest start to the highest.
func withAscendingStarts(gpus []gpu.GPU) []gpu.GPU {
	gpus = slices.Clone(gpus)
	for i := range gpus {
		rank := map[string]int{}
		for j, p := range gpus[i].Placements {
			if _, ok := rank[p.Profile]; !ok {
				rank[p.Profile] = j
			}
		}
		gpus[i].Placements = slices.SortedStableFunc(slices.Values(gpus[i].Placements), func(a, b gpu.Placement) int {
			return cmp.Or(cmp.Compare(rank[a.Profile], rank[b.Profile]), cmp.Compare(a.Start, b.Start))
		})
	}
	return gpus
}

// tenant holds a grant until its time is over.
type tenant struct {
	grant *allocator.Grant
	until float64
}

// count counts claims of one kind.
type count struct{ asked, refused int }

// churns adds up churns with all seeds, by the kinds of the mix.
func churns(ctx context.Context, gpus []gpu.GPU, mix []wish) ([]count, error) {
	all := make([]count, len(mix))
	for _, seed := range churnSeeds {
		counts, err := churn(ctx, gpus, mix, seed)
		if err != nil {
			return nil, err
		}
		for i, n := range counts {
			all[i].asked += n.asked
			all[i].refused += n.refused
		}
	}
	return all, nil
}

// churn lets claims come and go, the same ones for each seed whatever the GPUs
// look like, and counts those for which there is no room when they come.
func churn(ctx context.Context, gpus []gpu.GPU, mix []wish, seed uint64) ([]count, error) {
	classes, err := allocator.Classes(chart)
	if err != nil {
		return nil, err
	}
	published, err := slicesOf(gpus)
	if err != nil {
		return nil, err
	}
	counts := make([]count, len(mix))
	scheduler := allocator.New(classes, published)
	random := rand.New(rand.NewPCG(seed, 0))
	// Claims live for 1 on average.
	var rates []float64
	rate := 0.0
	for _, kind := range mix {
		rates = append(rates, churnLoad*computeSlices*float64(len(gpus))*kind.share/kind.slices)
		rate += rates[len(rates)-1]
	}
	now := 0.0
	var tenants []tenant
	for range churnClaims {
		now += random.ExpFloat64() / rate
		kind, lives := 0, random.ExpFloat64()
		for at := random.Float64() * rate; at > rates[kind] && kind < len(rates)-1; kind++ {
			at -= rates[kind]
		}
		tenants = slices.DeleteFunc(tenants, func(t tenant) bool {
			if t.until <= now {
				scheduler.Release(t.grant)
			}
			return t.until <= now
		})
		counts[kind].asked++
		grant, err := scheduler.Allocate(ctx, nodeName, allocator.Claim("claim", allocator.Request("gpu", classOf(mix[kind].profile), 1)))
		if err != nil {
			return nil, err
		}
		if grant == nil {
			counts[kind].refused++
			continue
		}
		tenants = append(tenants, tenant{grant, now + lives})
	}
	return counts, nil
}
