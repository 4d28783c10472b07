package report

import (
	"context"
	"fmt"

	"github.com/tranche-dev/tranche/test/figures"
	"github.com/tranche-dev/tranche/test/packing/replay"
)

// Figures are what the two stock ways to pack, the chart's scheduler profile and pod affinity, must
// reach on the trace, and how close pod affinity comes to best fit where large claims are few. Those
// of replays that the results do not have are left out.
func (r *Results) Figures() (all []figures.Figure) {
	for _, packs := range []string{"profile", "pod-affinity"} {
		for _, load := range r.Loads {
			of := Case{"trace", packs, load}
			all = r.add(all, of, "demand that waits", figures.AtMost(0.5, "%"), r.mean(of, waiting))
			all = r.add(all, of, "fragmentation", figures.AtMost(4, "%"), r.mean(of, r.fragmentation))
		}
	}
	for _, load := range r.Loads {
		of, best := Case{"few-large", "pod-affinity", load}, Case{"few-large", "best-fit", load}
		if len(r.Of[best]) > 0 {
			all = r.add(all, of, "large claims that do not start at once, above best fit", figures.AtMost(5, "points"), r.mean(of, late)-r.mean(best, late))
		}
	}
	return all
}

func (r *Results) add(all []figures.Figure, of Case, what string, limit figures.Limit, value float64) []figures.Figure {
	if len(r.Of[of]) == 0 {
		return all
	}
	return append(all, figures.Figure{
		Name:  fmt.Sprintf("%s at %.2f, %s: %s", of.Workload, of.Load, of.Policy, what),
		Limit: limit,
		Measure: func(context.Context) (figures.Reading, error) {
			return figures.Reading{Value: value, Seen: fmt.Sprintf("%d nodes, %d seeds", r.Nodes, len(r.Of[of]))}, nil
		},
	})
}

// late are the large claims that do not start at once, in percent.
func late(r replay.Result) float64 { return share(r.Large-r.Prompt, r.Large) }

// fragmentation is the free memory of no use, in percent of the fleet's.
func (r *Results) fragmentation(one replay.Result) float64 {
	return percent(one.Average.Fragmented, r.gpus())
}

// mean is the average of a value over the seeds, 0 without any.
func (r *Results) mean(of Case, value func(replay.Result) float64) (sum float64) {
	found := r.Of[of]
	for _, one := range found {
		sum += value(one) / float64(len(found))
	}
	return sum
}
