package demand

import (
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/pkg/cluster"
)

// Choice is a request, or one of the alternatives of a request.
type Choice struct {
	Class     string
	Selectors []resourceapi.DeviceSelector
	// All is true if it requests all devices of the node instead of Count.
	All         bool
	Count       int64
	AdminAccess bool
	Tolerations []resourceapi.DeviceToleration
	// Amounts are the capacities that it requests of devices that several claims can hold.
	Amounts map[resourceapi.QualifiedName]resource.Quantity
}

// Choices returns what would satisfy a request, in order of preference.
func Choices(r resourceapi.DeviceRequest) []Choice {
	if e := r.Exactly; e != nil {
		return []Choice{{
			Class: e.DeviceClassName, Selectors: e.Selectors, Count: max(1, e.Count), Tolerations: e.Tolerations,
			All: e.AllocationMode == resourceapi.DeviceAllocationModeAll, AdminAccess: ptr.Deref(e.AdminAccess, false),
			Amounts: amountsOf(e.Capacity),
		}}
	}
	var out []Choice
	for _, s := range r.FirstAvailable {
		out = append(out, Choice{
			Class: s.DeviceClassName, Selectors: s.Selectors, Count: max(1, s.Count), Tolerations: s.Tolerations,
			All: s.AllocationMode == resourceapi.DeviceAllocationModeAll, Amounts: amountsOf(s.Capacity),
		})
	}
	return out
}

func amountsOf(c *resourceapi.CapacityRequirements) map[resourceapi.QualifiedName]resource.Quantity {
	if c == nil {
		return nil
	}
	return c.Requests
}

// AmountText describes how much of a shared device is requested: "20Gi of memory".
func (ch Choice) AmountText() string {
	amounts := cluster.Amounts{}
	for name, q := range ch.Amounts {
		amounts[string(name)] = q
	}
	return strings.Join(amounts.Texts(true), ", ")
}
