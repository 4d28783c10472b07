package cluster

import (
	"maps"
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tranche-dev/tranche/api/names"
)

// Amounts are quantities by capacity.
type Amounts map[string]resource.Quantity

// Texts describes the amounts of a share: "20Gi of memory", "50% of compute". Without all, it leaves
// out defaults: one client, and compute without a limit.
func (a Amounts) Texts(all bool) []string {
	var out []string
	for _, name := range a.names() {
		q := a[name]
		text := q.String()
		switch {
		case name == names.CapacityComputePercent && text == "0" && !all, name == names.CapacityClients && text == "1" && !all:
		case name == names.CapacityComputePercent:
			out = append(out, text+"% of compute")
		case name == names.CapacityClients && text == "1":
			out = append(out, "1 client")
		case name == names.CapacityClients:
			out = append(out, text+" clients")
		case name == names.CapacityFraction:
			out = append(out, name+" "+strconv.FormatFloat(q.AsApproximateFloat64(), 'f', -1, 64))
		default:
			out = append(out, text+" of "+name)
		}
	}
	return out
}

// names returns the names of the capacities, those that measure shares first.
func (a Amounts) names() []string {
	all := slices.Sorted(maps.Keys(a))
	known := []string{names.CapacityMemory, names.CapacityFraction, names.CapacityComputePercent, names.CapacityClients}
	place := func(name string) int {
		if i := slices.Index(known, name); i >= 0 {
			return i
		}
		return len(known)
	}
	slices.SortStableFunc(all, func(a, b string) int { return place(a) - place(b) })
	return all
}
