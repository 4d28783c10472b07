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
)

var churnSeeds = []uint64{1, 2, 3}

// churnMix is what claims ask for: half of the load by small partitions and half
// by large ones.
var churnMix = []struct {
	profile string
	slices  float64
}{{"1g.10gb", 1}, {"4g.40gb", 4}}

// churnFigures: the order of the devices decides what a cut GPU can still give.
func (b *bench) churnFigures() []figures.Figure {
	return []figures.Figure{{
		Name:    fmt.Sprintf("refusals in a churn of 1g and 4g at load %.1f, against ascending starts", churnLoad),
		Limit:   figures.Below(1, "×"),
		Measure: b.countRefusals,
	}}
}

func (b *bench) countRefusals(ctx context.Context) (figures.Reading, error) {
	gpus, err := b.gpusOf(ctx, "h100x8")
	if err != nil {
		return figures.Reading{}, err
	}
	ours, ascending := 0, 0
	for _, seed := range churnSeeds {
		n, err := churn(ctx, gpus, seed)
		if err != nil {
			return figures.Reading{}, err
		}
		ours += n
		if n, err = churn(ctx, withAscendingStarts(gpus), seed); err != nil {
			return figures.Reading{}, err
		}
		ascending += n
	}
	return figures.Reading{
		Value: float64(ours) / float64(ascending),
		Seen:  fmt.Sprintf("%d against %d of %d claims, %d seeds", ours, ascending, churnClaims*len(churnSeeds), len(churnSeeds)),
	}, nil
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

// churn lets claims come and go, the same ones for each seed whatever the GPUs
// look like, and counts those for which there is no room when they come.
func churn(ctx context.Context, gpus []gpu.GPU, seed uint64) (refused int, err error) {
	classes, err := allocator.Classes(chart)
	if err != nil {
		return 0, err
	}
	published, err := slicesOf(gpus)
	if err != nil {
		return 0, err
	}
	scheduler := allocator.New(classes, published)
	random := rand.New(rand.NewPCG(seed, 0))
	// Claims live for 1 on average, and each profile brings half of the load.
	var rates []float64
	rate := 0.0
	for _, kind := range churnMix {
		rates = append(rates, churnLoad*computeSlices*float64(len(gpus))/float64(len(churnMix))/kind.slices)
		rate += rates[len(rates)-1]
	}
	now := 0.0
	var tenants []tenant
	for range churnClaims {
		now += random.ExpFloat64() / rate
		kind, lives := 0, random.ExpFloat64()
		for at := random.Float64() * rate; at > rates[kind]; kind++ {
			at -= rates[kind]
		}
		tenants = slices.DeleteFunc(tenants, func(t tenant) bool {
			if t.until <= now {
				scheduler.Release(t.grant)
			}
			return t.until <= now
		})
		grant, err := scheduler.Allocate(ctx, nodeName, allocator.Claim("claim", allocator.Request("gpu", classOf(churnMix[kind].profile), 1)))
		if err != nil {
			return 0, err
		}
		if grant == nil {
			refused++
			continue
		}
		tenants = append(tenants, tenant{grant, now + lives})
	}
	return refused, nil
}
