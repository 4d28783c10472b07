package picture

import (
	"cmp"
	"maps"
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tranche-dev/tranche/pkg/gpu"
)

// onlyAdmin tells whether all holders merely look at the device.
func (h *Held) onlyAdmin() bool {
	return !slices.ContainsFunc(h.Holders, func(o Holder) bool { return !o.Admin })
}

// place is a GPU of a node.
type place struct{ node, card string }

// allocations sorts what the claims hold of our driver by GPU and device. A
// claim may also hold devices of other drivers; those are not ours to draw.
func allocations(claims []resourceapi.ResourceClaim, namespace string) map[place]map[string]*Held {
	out := map[place]map[string]*Held{}
	for _, c := range claims {
		if c.Status.Allocation == nil {
			continue
		}
		for _, r := range c.Status.Allocation.Devices.Results {
			if r.Driver != gpu.DriverName {
				continue
			}
			at := place{gpu.NodeOfPool(r.Pool), CardOf(r.Device)}
			if out[at] == nil {
				out[at] = map[string]*Held{}
			}
			h := out[at][r.Device]
			if h == nil {
				h = &Held{Device: r.Device, Pool: r.Pool}
				out[at][r.Device] = h
			}
			h.Holders = append(h.Holders, newHolder(c, r, namespace))
		}
	}
	for _, pool := range out {
		for _, h := range pool {
			slices.SortFunc(h.Holders, func(a, b Holder) int {
				return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Claim, b.Claim))
			})
		}
	}
	return out
}

func newHolder(c resourceapi.ResourceClaim, r resourceapi.DeviceRequestAllocationResult, namespace string) Holder {
	var consumed map[string]resource.Quantity
	for name, quantity := range r.ConsumedCapacity {
		if consumed == nil {
			consumed = map[string]resource.Quantity{}
		}
		consumed[capacityName(name)] = quantity
	}
	admin := r.AdminAccess != nil && *r.AdminAccess
	if namespace != "" && c.Namespace != namespace {
		return Holder{Admin: admin, Hidden: true, consumed: consumed}
	}
	h := Holder{Namespace: c.Namespace, Claim: c.Name, Admin: admin, consumed: consumed}
	for _, user := range c.Status.ReservedFor {
		name := user.Name
		if user.Resource != "pods" {
			name = user.Resource + "/" + name
		}
		h.Pods = append(h.Pods, name)
	}
	slices.Sort(h.Pods)
	if len(consumed) > 0 {
		h.Consumed = texts(consumed)
	}
	return h
}

// lost lists what is held on cards that nobody publishes.
func lost(held map[place]map[string]*Held, onlyNodes []string) []Held {
	var out []Held
	byPlace := func(a, b place) int { return cmp.Or(cmp.Compare(a.node, b.node), cmp.Compare(a.card, b.card)) }
	for _, at := range slices.SortedFunc(maps.Keys(held), byPlace) {
		if !wanted(onlyNodes, at.node) {
			continue
		}
		for _, name := range slices.Sorted(maps.Keys(held[at])) {
			h := *held[at][name]
			h.Unpublished, h.Label = true, labelFromName(at.card, name)
			out = append(out, h)
		}
	}
	return out
}
