package cluster

import (
	"cmp"
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/lists"
)

type deviceKey struct{ driver, pool, device string }

// held is a device in the results of claims.
type held struct {
	pool, device string // as the claims name them
	holders      []Holder
}

func holdersOf(claims []resourceapi.ResourceClaim) map[deviceKey]*held {
	out := map[deviceKey]*held{}
	for i := range claims {
		c := &claims[i]
		if c.Status.Allocation == nil {
			continue
		}
		for _, r := range c.Status.Allocation.Devices.Results {
			key := deviceKey{r.Driver, r.Pool, r.Device}
			if out[key] == nil {
				out[key] = &held{pool: r.Pool, device: r.Device}
			}
			out[key].holders = append(out[key].holders, newHolder(c, r))
		}
	}
	for _, h := range out {
		slices.SortFunc(h.holders, func(a, b Holder) int {
			return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Claim, b.Claim))
		})
	}
	return out
}

func newHolder(c *resourceapi.ResourceClaim, r resourceapi.DeviceRequestAllocationResult) Holder {
	h := Holder{Namespace: c.Namespace, Claim: c.Name, Admin: ptr.Deref(r.AdminAccess, false)}
	for _, user := range c.Status.ReservedFor {
		if c := ConsumerOf(user); c.IsPod() {
			h.Pods = append(h.Pods, c.Name)
		} else {
			h.Others = append(h.Others, c)
		}
	}
	slices.Sort(h.Pods)
	slices.SortFunc(h.Others, func(a, b Consumer) int {
		return cmp.Or(cmp.Compare(a.APIGroup, b.APIGroup), cmp.Compare(a.Resource, b.Resource), cmp.Compare(a.Name, b.Name))
	})
	if len(r.ConsumedCapacity) > 0 {
		h.Consumed = Amounts{}
		for name, q := range r.ConsumedCapacity {
			h.Consumed[names.Unqualified(string(name))] = q
		}
	}
	return h
}

// Consumers names the pods, and what else the claim is reserved for: "podgroups.scheduling.k8s.io/workers".
func (h Holder) Consumers() []string {
	return append(slices.Clone(h.Pods), lists.Map(h.Others, Consumer.String)...)
}

// ConsumerOf returns what a claim is reserved for.
func ConsumerOf(r resourceapi.ResourceClaimConsumerReference) Consumer {
	return Consumer{APIGroup: r.APIGroup, Resource: r.Resource, Name: r.Name}
}

// IsPod reports whether the consumer is a pod.
func (c Consumer) IsPod() bool { return c.APIGroup == "" && c.Resource == "pods" }

// String names the consumer: "podgroups.scheduling.k8s.io/workers", and a pod by its name alone.
func (c Consumer) String() string {
	if c.IsPod() {
		return c.Name
	}
	return schema.GroupResource{Group: c.APIGroup, Resource: c.Resource}.String() + "/" + c.Name
}

// seenFrom removes the names of a holder in another namespace; empty keeps all.
func (h Holder) seenFrom(namespace string) Holder {
	if namespace == "" || h.Namespace == namespace {
		return h
	}
	return Holder{Admin: h.Admin, Hidden: true}
}

// AddHolders adds holders, each claim once. Hidden claims count as one, as nothing tells them apart.
func AddHolders(all []Holder, more ...Holder) []Holder {
	return lists.UnionFunc(all, func(a, b Holder) bool { return a.Namespace == b.Namespace && a.Claim == b.Claim }, more...)
}

// Left returns the free amount of a shared device, by capacity.
func (d *Device) Left() Amounts {
	rest := Amounts{}
	for name, capacity := range d.Capacity {
		n := capacity.Value.DeepCopy()
		for _, h := range d.holding() {
			n.Sub(h.Consumed[names.Unqualified(string(name))])
		}
		rest[names.Unqualified(string(name))] = n
	}
	return rest
}

// leftPart returns how much of a shared device is left, from 0 to 1: of its memory, or of the fraction that
// it measures shares in.
func (d *Device) leftPart() float64 {
	unit := names.CapacityMemory
	if d.ShareUnit == gpu.ByFraction {
		unit = names.CapacityFraction
	}
	left := d.Left()
	for name, capacity := range d.Capacity {
		if q := left[unit]; names.Unqualified(string(name)) == unit && !capacity.Value.IsZero() {
			return min(1, max(0, q.AsApproximateFloat64()/capacity.Value.AsApproximateFloat64()))
		}
	}
	return 0
}

// Users returns the claims that hold devices with a mode, each once, and that mode. It is empty if
// there are none.
func (p *Pool) Users() (mode string, holders []Holder) {
	for _, d := range p.Devices {
		if !d.Held() || d.Mode() == "" {
			continue
		}
		mode = d.Mode()
		holders = AddHolders(holders, d.holding()...)
	}
	return mode, holders
}
