package picture

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/tranche-dev/tranche/pkg/gpu"
)

// pool is the newest generation of a pool: one card.
type pool struct {
	name       string
	node       string
	counters   gpu.Counters
	devices    []resourceapi.Device
	incomplete string
}

// card is the name of the card: a pool is named <node>/<card>.
func (p pool) card() string {
	_, card := splitPool(p.name)
	return card
}

func splitPool(pool string) (node, card string) {
	if i := strings.LastIndex(pool, "/"); i >= 0 {
		return pool[:i], pool[i+1:]
	}
	return "", pool
}

// pools puts our slices together by pool. Slices of an older generation are on
// their way out and count for nothing, as in the scheduler.
func pools(all []resourceapi.ResourceSlice) []pool {
	newest := map[string][]resourceapi.ResourceSlice{}
	for _, s := range all {
		if s.Spec.Driver != gpu.DriverName {
			continue
		}
		have := newest[s.Spec.Pool.Name]
		switch {
		case len(have) == 0 || s.Spec.Pool.Generation > have[0].Spec.Pool.Generation:
			newest[s.Spec.Pool.Name] = []resourceapi.ResourceSlice{s}
		case s.Spec.Pool.Generation == have[0].Spec.Pool.Generation:
			newest[s.Spec.Pool.Name] = append(have, s)
		}
	}
	var out []pool
	for _, name := range slices.Sorted(maps.Keys(newest)) {
		out = append(out, newPool(name, newest[name]))
	}
	return out
}

func newPool(name string, parts []resourceapi.ResourceSlice) pool {
	slices.SortFunc(parts, func(a, b resourceapi.ResourceSlice) int { return cmp.Compare(a.Name, b.Name) })
	p := pool{name: name, counters: gpu.Counters{}}
	p.node, _ = splitPool(name)
	for _, s := range parts {
		if s.Spec.NodeName != nil {
			p.node = *s.Spec.NodeName
		}
		for _, set := range s.Spec.SharedCounters {
			for counter, c := range set.Counters {
				p.counters[counter] += c.Value.Value()
			}
		}
		p.devices = append(p.devices, s.Spec.Devices...)
	}
	if want := parts[0].Spec.Pool.ResourceSliceCount; int64(len(parts)) < want {
		p.incomplete = fmt.Sprintf("%d of %d slices are there", len(parts), want)
	}
	return p
}
