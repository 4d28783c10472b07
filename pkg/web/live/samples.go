package live

import (
	"cmp"
	"context"
	"maps"
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/allocation"
	"github.com/tranche-dev/tranche/pkg/cluster"
	"github.com/tranche-dev/tranche/pkg/cluster/overview"
	"github.com/tranche-dev/tranche/pkg/gpu"
)

// samples has published devices of each kind: one for each combination of what classes tell
// apart within a kind.
type samples struct {
	all map[sample]cel.Device
	// fresh: there are new ones.
	fresh     bool
	selectors *cel.Cache
}

// sample says what a device is an example of.
type sample struct {
	label, variants string
}

// variants are attributes in which devices of a kind differ.
var variants = []resourceapi.QualifiedName{"vendor", "productName", names.AttributeExtendedResourceName}

func sampled(c *cluster.Cluster) samples {
	s := samples{all: map[sample]cel.Device{}}
	for _, p := range c.Pools {
		if p.Driver != names.DriverName {
			continue
		}
		for _, d := range p.Devices {
			if d.Type == gpu.TypeMonitor {
				continue // nobody asks where one fits
			}
			of := sample{label: d.Label}
			for _, name := range variants {
				if v := d.Attributes[name].StringValue; v != nil {
					of.variants += *v
				}
				of.variants += "\x00"
			}
			if _, known := s.all[of]; !known {
				s.all[of] = d.CEL()
			}
		}
	}
	return s
}

func (s *samples) add(more samples) {
	for of, d := range more.all {
		if _, known := s.all[of]; known {
			continue
		}
		if s.all == nil {
			s.all = map[sample]cel.Device{}
		}
		s.all[of], s.fresh = d, true
	}
}

// kinds finds the class of each kind: one that selects all devices of the kind and no others, by
// the scheduler's CEL.
func (s *samples) kinds(ctx context.Context, classes []resourceapi.DeviceClass) []overview.Kind {
	s.fresh = false
	if s.selectors == nil {
		s.selectors = allocation.NewCache(len(classes) + 1)
	}
	kinds := map[string]*overview.Kind{}
	for of, d := range s.all {
		if kinds[of.label] == nil {
			kinds[of.label] = kindOf(of.label, d)
		}
	}
	best := map[string]*resourceapi.DeviceClass{}
	for i := range classes {
		if label, ok := s.selected(ctx, &classes[i]); ok && (best[label] == nil || better(&classes[i], best[label])) {
			best[label], kinds[label].Class = &classes[i], classes[i].Name
		}
	}
	out := make([]overview.Kind, 0, len(kinds))
	for _, label := range slices.Sorted(maps.Keys(kinds)) {
		out = append(out, *kinds[label])
	}
	return out
}

// better prefers classes that do not serve a resource of device plugins, then short names.
func better(a, b *resourceapi.DeviceClass) bool {
	resource := func(c *resourceapi.DeviceClass) int { return min(1, len(ptr.Deref(c.Spec.ExtendedResourceName, ""))) }
	return cmp.Or(cmp.Compare(resource(a), resource(b)), cmp.Compare(len(a.Name), len(b.Name)), cmp.Compare(a.Name, b.Name)) < 0
}

// selected returns the kind of which a class selects everything, if it selects nothing else.
func (s *samples) selected(ctx context.Context, class *resourceapi.DeviceClass) (label string, ok bool) {
	matches := func(d cel.Device) bool {
		ok, err := allocation.Matches(ctx, s.selectors, d, class.Spec.Selectors...)
		return ok && err == nil
	}
	found, missed := map[string]bool{}, map[string]bool{}
	for of, d := range s.all {
		switch {
		case !matches(d):
			missed[of.label] = true
		case of.label != cluster.WholeGPU && matches(ofOtherProfile(d)):
			return "", false
		default:
			label, found[of.label] = of.label, true
		}
	}
	return label, len(found) == 1 && !missed[label]
}

// ofOtherProfile returns a device as d, but for its profile. Nodes may publish such ones tomorrow.
func ofOtherProfile(d cel.Device) cel.Device {
	d.Attributes = maps.Clone(d.Attributes)
	d.Attributes["profile"] = resourceapi.DeviceAttribute{StringValue: ptr.To("another")}
	return d
}

func kindOf(label string, d cel.Device) *overview.Kind {
	text := func(name resourceapi.QualifiedName) string {
		if v := d.Attributes[name].StringValue; v != nil {
			return *v
		}
		return ""
	}
	k := &overview.Kind{Label: label, Attribute: "profile", Value: label}
	switch {
	case label == cluster.WholeGPU:
		k.Attribute, k.Value = "type", string(gpu.TypeGPU)
	case text(names.AttributeShareUnit) != "":
		k.By, k.Profile = gpu.Basis(text(names.AttributeShareUnit)), text("profile")
	}
	return k
}
