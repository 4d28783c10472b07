package steps

import (
	"fmt"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/gpu"
)

// amountOf returns the amount of a share that the scheduler allocated. It refuses amounts that
// are out of range, because a limit of zero would mean no limit.
func amountOf(p gpu.Placement, result *resourceapi.DeviceRequestAllocationResult) (*gpu.Amount, error) {
	taken := taken{device: p.Name(), of: result.ConsumedCapacity}
	if result.ShareID == nil || *result.ShareID == "" || len(taken.of) == 0 {
		return nil, fmt.Errorf("device %s is a share, but the allocation does not say of how much: the scheduler must run with the feature DRAConsumableCapacity; then delete the pod so that it is scheduled again", p.Name())
	}
	amount := &gpu.Amount{}
	var err error
	if p.Share.By == gpu.ByFraction {
		if amount.Fraction, err = taken.part(names.CapacityFraction, resource.Milli, gpu.WholeFraction); err != nil {
			return nil, err
		}
		amount.Memory = p.Memory * amount.Fraction / gpu.WholeFraction / gpu.MiB * gpu.MiB
	} else if amount.Memory, err = taken.part(names.CapacityMemory, 0, p.Memory); err != nil {
		return nil, err
	}
	if amount.Memory < gpu.MiB && p.Memory > 0 { // of a GPU that does not report its memory, none is known
		return nil, fmt.Errorf("device %s: the claim was allocated %d bytes of its memory, and less than 1Mi cannot be shared; request more", p.Name(), amount.Memory)
	}
	if taken.some(names.CapacityComputePercent) {
		if amount.Compute, err = taken.part(names.CapacityComputePercent, 0, totalOf(p).Compute); err != nil {
			return nil, err
		}
	}
	amount.Clients = 1
	if taken.names(names.CapacityClients) {
		if amount.Clients, err = taken.part(names.CapacityClients, 0, mostClients(p)); err != nil {
			return nil, err
		}
	}
	return amount, nil
}

// LeastOf returns the smallest amount of a share device.
func LeastOf(p gpu.Placement) *gpu.Amount {
	least := &gpu.Amount{Memory: min(gpu.MiB, p.Memory), Clients: 1}
	if p.Share.By == gpu.ByFraction {
		least.Fraction = max(1, (least.Memory*gpu.WholeFraction+p.Memory-1)/max(1, p.Memory))
	}
	return least
}

// taken has the consumed capacities of one allocation result.
type taken struct {
	device string
	of     map[resourceapi.QualifiedName]resource.Quantity
}

func (t taken) get(name string) (resource.Quantity, bool) {
	for _, key := range []string{name, names.DriverName + "/" + name} {
		if q, ok := t.of[resourceapi.QualifiedName(key)]; ok {
			return q, true
		}
	}
	return resource.Quantity{}, false
}

func (t taken) names(name string) bool {
	_, ok := t.get(name)
	return ok
}

// some reports whether a capacity is present and not zero. Optional capacities are zero by default.
func (t taken) some(name string) bool {
	q, ok := t.get(name)
	return ok && !q.IsZero()
}

// part returns a consumed capacity in units of a scale, rounded down. It must be at least 1 and
// at most all.
func (t taken) part(name string, scale resource.Scale, all int64) (int64, error) {
	q, ok := t.get(name)
	if !ok {
		return 0, fmt.Errorf("device %s: the allocation does not say how much of its %s the claim has; delete the pod so that it is scheduled again", t.device, name)
	}
	whole := resource.NewScaledQuantity(all, scale)
	if name == names.CapacityMemory {
		whole.Format = resource.BinarySI
	}
	n := floor(q, scale)
	if n < 1 || q.Cmp(*whole) > 0 {
		return 0, fmt.Errorf("device %s: the claim was allocated %s of its %s, which must be more than 0 and at most %s; change the request", t.device, q.String(), name, whole)
	}
	return n, nil
}

// floor rounds a quantity down to whole units of a scale. ScaledValue rounds up, so that two
// halves of an odd number would exceed the whole.
func floor(q resource.Quantity, scale resource.Scale) int64 {
	n := q.ScaledValue(scale)
	if resource.NewScaledQuantity(n, scale).Cmp(q) > 0 {
		n--
	}
	return n
}

// totalOf returns the capacities of a share device. The memory of a share by fraction follows
// from the fraction, and is not counted.
func totalOf(p gpu.Placement) gpu.Amount {
	total := gpu.Amount{Clients: int64(p.Share.MaxClients)}
	if p.Share.By == gpu.ByFraction {
		total.Fraction = gpu.WholeFraction
	} else {
		total.Memory = p.Memory
	}
	if p.Share.Limits {
		total.Compute = gpu.WholeCompute
	}
	return total
}

// mostClients is the maximum number of clients of one claim.
func mostClients(p gpu.Placement) int64 {
	if p.Share.FailRequestsGreaterThanOne {
		return 1
	}
	return int64(p.Share.MaxClients)
}

func plus(a, b gpu.Amount) gpu.Amount {
	return gpu.Amount{Memory: a.Memory + b.Memory, Fraction: a.Fraction + b.Fraction, Compute: a.Compute + b.Compute, Clients: a.Clients + b.Clients}
}

// over names the capacity of a share device that an amount exceeds; empty if it fits.
func over(p gpu.Placement, sum gpu.Amount) string {
	total := totalOf(p)
	switch {
	case p.Share.By == gpu.ByMemory && sum.Memory > total.Memory:
		return names.CapacityMemory
	case sum.Fraction > total.Fraction:
		return names.CapacityFraction
	case sum.Compute > total.Compute:
		return names.CapacityComputePercent
	case sum.Clients > total.Clients:
		return names.CapacityClients
	}
	return ""
}
