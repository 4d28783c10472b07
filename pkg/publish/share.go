package publish

import (
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/gpu"
)

// setShare adds the attributes of a share.
func (m attributeMap) setShare(g *gpu.GPU, p gpu.Placement) {
	m.setString(names.AttributeShareUnit, string(p.Share.By))
	m.setString(names.AttributeSharingStrategy, string(p.Share.Strategy))
	if p.Share.Burst() {
		m.setInt(names.AttributeMaxMemoryLimitPercent, int64(p.Share.MaxMemoryLimitPercent))
	}
	m.setCut(g, p.Base())
}

// shareCapacity returns the capacities of a share device, of which claims consume parts. A
// capacity that a claim does not request has a default. That of memory or fraction is above zero,
// because the scheduler does not count a claim that consumes nothing.
//
// The fraction has no valid range, because that needs the feature gate
// DRAFractionalCapacityRange. The chart's admission policy validates it.
func shareCapacity(p gpu.Placement) map[resourceapi.QualifiedName]resourceapi.DeviceCapacity {
	s, replicas := p.Share, int64(max(1, p.Share.Replicas))
	m := map[resourceapi.QualifiedName]resourceapi.DeviceCapacity{
		names.CapacityClients: ofClients(s.Sharing),
	}
	switch s.By {
	case gpu.ByMemory:
		m[names.CapacityMemory] = consumable(p.Memory, p.Memory/replicas/gpu.MiB*gpu.MiB, resource.BinarySI,
			&resourceapi.CapacityRequestPolicyRange{
				Min: resource.NewQuantity(gpu.MiB, resource.BinarySI), Step: resource.NewQuantity(gpu.MiB, resource.BinarySI),
			})
	case gpu.ByFraction:
		m[names.CapacityFraction] = resourceapi.DeviceCapacity{
			Value: *resource.NewQuantity(1, resource.DecimalSI),
			RequestPolicy: &resourceapi.CapacityRequestPolicy{
				Default: resource.NewMilliQuantity(gpu.WholeFraction/replicas, resource.DecimalSI),
			},
		}
	}
	if s.Limits {
		m[names.CapacityComputePercent] = consumable(gpu.WholeCompute, 0, resource.DecimalSI, &resourceapi.CapacityRequestPolicyRange{
			Min: count(0), Max: count(gpu.WholeCompute), Step: count(1),
		})
	}
	return m
}

func ofClients(s gpu.Sharing) resourceapi.DeviceCapacity {
	valid := &resourceapi.CapacityRequestPolicyRange{Min: count(1)}
	if s.FailRequestsGreaterThanOne {
		valid.Max = count(1)
	}
	return consumable(int64(s.MaxClients), 1, resource.DecimalSI, valid)
}

func consumable(value, byDefault int64, format resource.Format, valid *resourceapi.CapacityRequestPolicyRange) resourceapi.DeviceCapacity {
	return resourceapi.DeviceCapacity{
		Value: *resource.NewQuantity(value, format),
		RequestPolicy: &resourceapi.CapacityRequestPolicy{
			Default: resource.NewQuantity(byDefault, format), ValidRange: valid,
		},
	}
}

func count(n int64) *resource.Quantity { return resource.NewQuantity(n, resource.DecimalSI) }

// allowMultiple is true for shares, and absent otherwise.
func allowMultiple(p gpu.Placement) *bool {
	if p.Share == nil {
		return nil
	}
	return ptr.To(true)
}
