package main

import (
	"context"
	"fmt"

	"github.com/tranche-dev/tranche/pkg/hardware/xcp"
	"github.com/tranche-dev/tranche/test/allocator"
	"github.com/tranche-dev/tranche/test/figures"
)

const (
	// amdInventory is what AMD's figures are taken on, and finestMode that in which
	// such a GPU has most partitions.
	amdInventory = "mi300x8"
	finestMode   = xcp.CPX
	// preparedOfEach is how many claims are prepared on either vendor's GPUs while
	// the time of one more is taken.
	preparedOfEach = 50
	// discoveryRounds are the starts of a plugin that are measured.
	discoveryRounds = 25
)

// amdFigures: AMD's partitions, against NVIDIA's in the same run.
func (b *bench) amdFigures(ctx context.Context) []figures.Figure {
	return []figures.Figure{
		{
			Name:    "allocation of a CPX on an empty node of 8 × MI300X, against a 1g on 8 × H100",
			Limit:   figures.AtMost(1.2, "×"),
			Measure: b.timeAMDAllocation,
		},
		{
			Name:    fmt.Sprintf("CPU time of Prepare + Unprepare of a CPX on a GPU in CPX at %d prepared, against a 1g", preparedOfEach),
			Limit:   figures.AtMost(1.1, "×"),
			Measure: func(context.Context) (figures.Reading, error) { return b.timeAMDPrepare(ctx) },
		},
		{
			Name:    "discovery of 8 × MI300X in CPX, on a simulated kernel",
			Limit:   figures.Below(50, "ms"),
			Measure: b.timeDiscovery,
		},
	}
}

func (b *bench) timeAMDAllocation(ctx context.Context) (figures.Reading, error) {
	classes, err := allocator.Classes(chart)
	if err != nil {
		return figures.Reading{}, fmt.Errorf("read the chart's device classes (run this from the root of the repository): %w", err)
	}
	var both []*layout
	for _, node := range []struct{ inventory, class string }{
		{amdInventory, "gpu-xcp-" + finestMode.Profile() + ".tranche.dev"},
		{"h100x8", classOf("1g.10gb")},
	} {
		gpus, err := b.gpusOf(ctx, node.inventory)
		if err != nil {
			return figures.Reading{}, err
		}
		published, err := slicesOf(gpus)
		if err != nil {
			return figures.Reading{}, err
		}
		both = append(both, &layout{Scheduler: allocator.New(classes, published), class: node.class})
	}
	return timeBoth(ctx, both, false)
}

// timeAMDPrepare: nothing has to be switched, so that what is left is the
// driver's own time, as it is for MIG on hardware that answers at once.
func (b *bench) timeAMDPrepare(ctx context.Context) (figures.Reading, error) {
	var measures []func() (float64, error)
	for _, inventory := range []string{amdInventory, "h100x8"} {
		gpus, err := b.gpusOf(ctx, inventory)
		if err != nil {
			return figures.Reading{}, err
		}
		hardware := &memory{gpus: gpus}
		if inventory == amdInventory {
			hardware = inMode(gpus, finestMode.Profile())
		}
		r, err := b.rigWith(ctx, hardware, preparedOfEach)
		if err != nil {
			return figures.Reading{}, fmt.Errorf("prepare %d claims on %s: %w", preparedOfEach, inventory, err)
		}
		defer r.stop()
		measures = append(measures, func() (float64, error) { return r.cpuOfPair(ctx) })
	}
	times, err := inTurns(preparePairs, measures...)
	if err != nil {
		return figures.Reading{}, err
	}
	return against(times[0], times[1]), nil
}
