package noderesources

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/allocation"
	"github.com/tranche-dev/tranche/pkg/gpu"
)

// Class returns a device class; nil: there is none.
type Class func(name string) *resourceapi.DeviceClass

// Least returns the least that a claim can end with, on any node. What it cannot tell counts as
// nothing: classes of other drivers, classes that do not exist, selectors that fail, and shares
// without an amount, whose default depends on the node's profile.
func (c *Catalog) Least(ctx context.Context, spec *resourceapi.ResourceClaimSpec, classes Class) (sum Amount) {
	for _, r := range spec.Devices.Requests {
		if e := r.Exactly; e != nil {
			if !ptr.Deref(e.AdminAccess, false) {
				sum = sum.plus(c.leastOf(ctx, &choice{classes(e.DeviceClassName), e.Selectors, e.Capacity}).times(leastCount(e.Count)))
			}
			continue
		}
		var least *Amount
		for i := range r.FirstAvailable {
			s := &r.FirstAvailable[i]
			amount := c.leastOf(ctx, &choice{classes(s.DeviceClassName), s.Selectors, s.Capacity}).times(leastCount(s.Count))
			if least != nil {
				amount = amount.Least(*least)
			}
			least = &amount
		}
		sum = sum.plus(ptr.Deref(least, Amount{}))
	}
	return sum
}

// LeastOfClass returns the least that one device of a class takes, as for one unit of the class's
// extended resource.
func (c *Catalog) LeastOfClass(ctx context.Context, class *resourceapi.DeviceClass) Amount {
	return c.leastOf(ctx, &choice{class: class})
}

// leastCount returns the least number of devices that a request ends with, from its count, which is 0
// if it asks for all. More than an allocation can have will never be allocated.
func leastCount(count int64) int64 {
	return min(max(1, count), resourceapi.AllocationResultsMaxSize)
}

// choice is one way to satisfy a request.
type choice struct {
	class     *resourceapi.DeviceClass
	selectors []resourceapi.DeviceSelector
	capacity  *resourceapi.CapacityRequirements
}

// requested returns the requested amount of a capacity, with and without the driver's domain.
func (ch *choice) requested(name resourceapi.QualifiedName) (resource.Quantity, bool) {
	if ch.capacity == nil {
		return resource.Quantity{}, false
	}
	for key, q := range ch.capacity.Requests {
		if names.Unqualified(string(key)) == string(name) {
			return q, true
		}
	}
	return resource.Quantity{}, false
}

// leastOf returns the least that a device takes that the choice selects. It is nothing if the
// selectors take too long. An answer is kept unless the context has ended.
func (c *Catalog) leastOf(ctx context.Context, ch *choice) Amount {
	if ch.class == nil {
		return Amount{}
	}
	selectors := slices.Concat(ch.class.Spec.Selectors, ch.selectors)
	key, err := json.Marshal([]any{selectors, ch.capacity})
	if err != nil {
		return Amount{}
	}
	if answer, ok := c.answers.Get(string(key)); ok {
		return answer.(Amount) //nolint:forcetypeassert // has no others
	}
	// To compile most selectors takes longer than to evaluate them for all devices.
	for began, i := time.Now(), 0; i < len(selectors) && time.Since(began) < longest; i++ {
		if s := selectors[i].CEL; s != nil {
			c.selectors.GetOrCompile(s.Expression)
		}
	}
	limited, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	answer := c.search(limited, ch, selectors)
	if ctx.Err() != nil {
		return Amount{}
	}
	c.answers.Add(string(key), answer)
	return answer
}

// longest is how long it may take to compile the selectors of a request, and to evaluate them for all
// devices, since tenants write them.
const longest = time.Second

func (c *Catalog) search(ctx context.Context, ch *choice, selectors []resourceapi.DeviceSelector) Amount {
	if ok, _ := allocation.Matches(ctx, c.selectors, notOurs, selectors...); ok {
		return Amount{}
	}
	var least *Amount
	for i := range c.devices {
		d := &c.devices[i]
		ok, err := allocation.Matches(ctx, c.selectors, d.device, selectors...)
		if err != nil {
			return Amount{}
		}
		if !ok || !d.has(ch) {
			continue
		}
		amount := d.amount(ch)
		if least != nil {
			amount = amount.Least(*least)
		}
		least = &amount
	}
	return ptr.Deref(least, Amount{})
}

func (d *device) has(ch *choice) bool {
	if ch.capacity == nil {
		return true
	}
	for key, want := range ch.capacity.Requests {
		have, ok := d.device.Capacity[resourceapi.QualifiedName(names.Unqualified(string(key)))]
		if !ok || have.Value.Cmp(want) < 0 {
			return false
		}
	}
	return true
}

// amount returns the least that a holder of the device takes.
func (d *device) amount(ch *choice) Amount {
	share := d.placement.Share
	switch {
	case share == nil:
		out := d.whole()
		if q, ok := ch.requested(names.CapacityMemory); ok {
			out.MemoryMiB = max(out.MemoryMiB, q.Value()/gpu.MiB)
		}
		return out
	case share.By == gpu.ByMemory:
		q, _ := ch.requested(names.CapacityMemory)
		return Amount{MemoryMiB: q.Value() / gpu.MiB}
	}
	q, _ := ch.requested(names.CapacityFraction)
	part := q.MilliValue()
	whole := d.whole()
	return Amount{MemoryMiB: whole.MemoryMiB * part / gpu.WholeFraction, Compute: whole.Compute * part / gpu.WholeFraction}
}

// whole returns what the GPU or partition takes that the device is, or is a share of.
func (d *device) whole() Amount {
	out := ofPlacement(d.placement.Base())
	if d.memoryVaries {
		out.MemoryMiB -= out.MemoryMiB / 8 // ECC takes 1/16 of GDDR
	}
	return out
}
