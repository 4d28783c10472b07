package picture

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/tranche-dev/tranche/pkg/gpu"
)

// pool is one GPU in the newest generation of its node's pool.
type pool struct {
	name       string
	node       string
	card       string
	counters   gpu.Counters
	devices    []resourceapi.Device
	incomplete string
}

// CardOf is the GPU that a device belongs to. A device whose name says none is one by
// itself.
func CardOf(device string) string { return cmp.Or(gpu.CardOfDevice(device), device) }

// pools finds the GPUs in our slices. Slices of an older generation are on their way
// out and count for nothing, as in the scheduler.
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
		out = append(out, split(name, newest[name])...)
	}
	return out
}

// split divides a pool into its GPUs.
func split(name string, parts []resourceapi.ResourceSlice) []pool {
	slices.SortFunc(parts, func(a, b resourceapi.ResourceSlice) int { return cmp.Compare(a.Name, b.Name) })
	node, incomplete := gpu.NodeOfPool(name), ""
	if want := parts[0].Spec.Pool.ResourceSliceCount; int64(len(parts)) < want {
		incomplete = fmt.Sprintf("%d of %d slices are there", len(parts), want)
	}
	cards := map[string]*pool{}
	of := func(card string) *pool {
		if cards[card] == nil {
			cards[card] = &pool{name: name, card: card, counters: gpu.Counters{}, incomplete: incomplete}
		}
		return cards[card]
	}
	for _, s := range parts {
		if s.Spec.NodeName != nil {
			node = *s.Spec.NodeName
		}
		for _, set := range s.Spec.SharedCounters {
			for counter, c := range set.Counters {
				of(set.Name).counters[counter] += c.Value.Value()
			}
		}
		for _, d := range s.Spec.Devices {
			p := of(CardOf(d.Name))
			p.devices = append(p.devices, d)
		}
	}
	var out []pool
	for _, card := range slices.Sorted(maps.Keys(cards)) {
		cards[card].node = node
		out = append(out, *cards[card])
	}
	return out
}
