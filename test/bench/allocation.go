package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/test/allocator"
	"github.com/tranche-dev/tranche/test/figures"
	"github.com/tranche-dev/tranche/test/nodes"
)

const (
	// chart is where the chart's device classes are, seen from the root of the
	// repository.
	chart = "deployments/helm/testdata/defaults.yaml"

	allocationTurns = 600
)

// allocationFigures: the time of one allocation with our layout against one pool
// per node with more counters, attributes and capacities, of the same GPUs.
func (b *bench) allocationFigures() []figures.Figure {
	var all []figures.Figure
	for _, node := range []struct{ name, inventory string }{{"8 × H100", "h100x8"}, {"8 × H200", "h200x8"}} {
		for _, state := range []string{"an empty", "a full"} {
			all = append(all, figures.Figure{
				Name:  fmt.Sprintf("allocation of a 1g on %s node of %s, against the other layout", state, node.name),
				Limit: figures.AtMost(1, "×"),
				Measure: func(ctx context.Context) (figures.Reading, error) {
					return b.timeAllocation(ctx, node.inventory, state == "a full")
				},
			})
		}
	}
	return all
}

// layout is one way to publish a node, and the scheduler that sees it.
type layout struct {
	*allocator.Scheduler
	class string
	// request asks for what is measured; nil: a device of the class.
	request func(context.Context) (*allocator.Grant, error)
}

func classOf(profile string) string { return "gpu-mig-" + gpu.ProfileSlug(profile) + ".tranche.dev" }

// ask asks for one device; nil when it has to wait.
func (l *layout) ask(ctx context.Context) (*allocator.Grant, error) {
	if l.request != nil {
		return l.request(ctx)
	}
	return l.Allocate(ctx, nodeName, allocator.Claim("claim", allocator.Request("gpu", l.class, 1)))
}

// layouts are ours and the other one of the same GPUs.
func layouts(gpus []gpu.GPU) ([]*layout, error) {
	classes, err := allocator.Classes(chart)
	if err != nil {
		return nil, fmt.Errorf("read the chart's device classes (run this from the root of the repository): %w", err)
	}
	ours, err := slicesOf(gpus)
	if err != nil {
		return nil, err
	}
	class := classOf(gpus[0].Placements[0].Profile)
	return []*layout{
		{Scheduler: allocator.New(classes, ours), class: class},
		{Scheduler: allocator.New(nodes.ForDriver(classes, nodes.NVIDIADriver), nodes.NVIDIASlices(nodeName, gpus)), class: class},
	}, nil
}

func (b *bench) timeAllocation(ctx context.Context, inventory string, full bool) (figures.Reading, error) {
	gpus, err := b.gpusOf(ctx, inventory)
	if err != nil {
		return figures.Reading{}, err
	}
	both, err := layouts(gpus)
	if err != nil {
		return figures.Reading{}, err
	}
	if full {
		if err := fillBoth(ctx, both); err != nil {
			return figures.Reading{}, err
		}
	}
	return timeBoth(ctx, both, full)
}

// timeBoth takes the time of an allocation with one layout against another. The
// first round compiles the classes' expressions.
func timeBoth(ctx context.Context, both []*layout, full bool) (figures.Reading, error) {
	var measures []func() (float64, error)
	for _, l := range both {
		measures = append(measures, func() (float64, error) { return l.timeOne(ctx, full) })
	}
	times, err := inTurns(allocationTurns, measures...)
	if err != nil {
		return figures.Reading{}, err
	}
	return against(times[0], times[1]), nil
}

// timeOne takes the time of one allocation, and gives back what was granted.
func (l *layout) timeOne(ctx context.Context, full bool) (seconds float64, err error) {
	start := time.Now()
	grant, err := l.ask(ctx)
	seconds = time.Since(start).Seconds()
	switch {
	case err != nil:
		return 0, err
	case full != (grant == nil):
		return 0, errors.New("a claim was granted on a full node, or none on an empty one")
	case grant != nil:
		l.Release(grant)
	}
	return seconds, nil
}

// fillBoth gives everything away, as many devices in both layouts.
func fillBoth(ctx context.Context, both []*layout) error {
	for _, l := range both {
		for {
			grant, err := l.ask(ctx)
			if err != nil {
				return err
			}
			if grant == nil {
				break
			}
		}
	}
	if a, b := len(both[0].Held()), len(both[1].Held()); a != b || a == 0 {
		return fmt.Errorf("%d devices fill our layout, %d the other", a, b)
	}
	return nil
}
