package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/tranche-dev/tranche/test/figures"
)

const (
	// creation is how long the hardware takes to make a partition.
	creation       = 300 * time.Millisecond
	parallelGPUs   = 8
	parallelRounds = 5
)

// parallelFigures: claims on different GPUs do not wait for each other.
func (b *bench) parallelFigures() []figures.Figure {
	return []figures.Figure{{
		Name:    fmt.Sprintf("%d claims on %d GPUs at once, against one, creation %s", parallelGPUs, parallelGPUs, creation),
		Limit:   figures.AtMost(1.5, "×"),
		Measure: b.timeParallel,
	}}
}

func (b *bench) timeParallel(ctx context.Context) (figures.Reading, error) {
	gpus, err := b.gpusOf(ctx, "h100x8")
	if err != nil {
		return figures.Reading{}, err
	}
	r, err := b.newRig(ctx, &memory{gpus: gpus, creation: creation})
	if err != nil {
		return figures.Reading{}, err
	}
	defer r.stop()
	var claims []*resourceapi.ResourceClaim
	for i, g := range gpus[:parallelGPUs] {
		c := claimFor(i, g.Placements[0].Name())
		if err := r.allocate(c); err != nil {
			return figures.Reading{}, err
		}
		claims = append(claims, c)
	}
	return allAgainstOne(ctx, r.kubelet, claims)
}

// allAgainstOne prepares all claims at once, each in a call of its own as for
// pods of their own, and then one alone.
func allAgainstOne(ctx context.Context, k *kubelet, claims []*resourceapi.ResourceClaim) (figures.Reading, error) {
	var all, one []float64
	for range parallelRounds {
		took, err := prepareAll(ctx, k, claims)
		if err != nil {
			return figures.Reading{}, err
		}
		all = append(all, took)
		if took, err = prepareAll(ctx, k, claims[:1]); err != nil {
			return figures.Reading{}, err
		}
		one = append(one, took)
	}
	return against(all, one), nil
}

// prepareAll prepares claims at once, takes the time, and releases them.
func prepareAll(ctx context.Context, k *kubelet, claims []*resourceapi.ResourceClaim) (seconds float64, err error) {
	start := time.Now()
	if err := atOnce(claims, func(c *resourceapi.ResourceClaim) error { return k.prepare(ctx, c) }); err != nil {
		return 0, err
	}
	seconds = time.Since(start).Seconds()
	return seconds, atOnce(claims, func(c *resourceapi.ResourceClaim) error { return k.unprepare(ctx, c) })
}

func atOnce(claims []*resourceapi.ResourceClaim, do func(*resourceapi.ResourceClaim) error) error {
	errs := make(chan error, len(claims))
	var wg sync.WaitGroup
	for _, c := range claims {
		wg.Go(func() { errs <- do(c) })
	}
	wg.Wait()
	close(errs)
	for err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
