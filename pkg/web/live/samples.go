package live

import (
	"cmp"
	"context"
	"maps"
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/cel"

	"github.com/tranche-dev/tranche/pkg/allocation"
	"github.com/tranche-dev/tranche/pkg/cluster"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/web/view"
)

// samples has a published device of each kind. Shares are no kind: how much fits of them is an
// amount, not a number.
type samples struct {
	all map[string]cel.Device
	// fresh: there are new ones.
	fresh     bool
	selectors *cel.Cache
}

func sampled(c *cluster.Cluster) samples {
	s := samples{all: map[string]cel.Device{}}
	for _, p := range c.Pools {
		if p.Driver != gpu.DriverName {
			continue
		}
		for _, d := range p.Devices {
			if _, known := s.all[d.Label]; !known && !d.Shared() {
				s.all[d.Label] = d.CEL()
			}
		}
	}
	return s
}

func (s *samples) add(more samples) {
	for label, d := range more.all {
		if _, known := s.all[label]; known {
			continue
		}
		if s.all == nil {
			s.all = map[string]cel.Device{}
		}
		s.all[label], s.fresh = d, true
	}
}

// kinds finds the class of each kind: the one that selects the fewest kinds, by the scheduler's
// CEL.
func (s *samples) kinds(ctx context.Context, classes []resourceapi.DeviceClass) []view.Kind {
	s.fresh = false
	if s.selectors == nil {
		s.selectors = allocation.NewCache(len(classes) + 1)
	}
	labels := slices.Sorted(maps.Keys(s.all))
	best, narrow := map[string]string{}, map[string]int{}
	for i := range classes {
		class := &classes[i]
		var selected []string
		for _, label := range labels {
			if ok, err := allocation.Matches(ctx, s.selectors, s.all[label], class.Spec.Selectors...); ok && err == nil {
				selected = append(selected, label)
			}
		}
		for _, label := range selected {
			n := len(selected)
			if was, ok := best[label]; !ok || cmp.Or(cmp.Compare(n, narrow[label]), cmp.Compare(len(class.Name), len(was)), cmp.Compare(class.Name, was)) < 0 {
				best[label], narrow[label] = class.Name, n
			}
		}
	}
	out := make([]view.Kind, 0, len(labels))
	for _, label := range labels {
		k := view.Kind{Label: label, Attribute: "profile", Value: label}
		if label == cluster.WholeGPU {
			k.Attribute, k.Value = "type", string(gpu.TypeGPU)
		}
		if narrow[label] == 1 {
			k.Class = best[label]
		}
		out = append(out, k)
	}
	return out
}
