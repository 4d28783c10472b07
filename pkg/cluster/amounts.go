package cluster

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tranche-dev/tranche/api/names"
)

// capacityName removes the driver's domain, which is optional in names of capacities.
func capacityName(name resourceapi.QualifiedName) string {
	return strings.TrimPrefix(string(name), names.DriverName+"/")
}

func texts(amounts map[string]resource.Quantity) map[string]string {
	out := map[string]string{}
	for name, q := range amounts {
		out[name] = q.String()
	}
	return out
}

// Amounts describes the amounts of a share: "20Gi of memory, 50% of compute". Without all, it
// leaves out defaults: one client, and compute without a limit.
func Amounts(of map[string]string, all bool) []string {
	var out []string
	for _, name := range amountNames(of) {
		text := of[name]
		switch {
		case name == names.CapacityComputePercent && text == "0" && !all, name == "clients" && text == "1" && !all:
		case name == names.CapacityComputePercent:
			out = append(out, text+"% of compute")
		case name == "clients" && text == "1":
			out = append(out, "1 client")
		case name == "clients":
			out = append(out, text+" clients")
		case name == "fraction":
			out = append(out, name+" "+decimal(text))
		default:
			out = append(out, text+" of "+name)
		}
	}
	return out
}

// amountNames returns the names of the capacities, those that measure shares first.
func amountNames(of map[string]string) []string {
	all := slices.Sorted(maps.Keys(of))
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

// decimal formats a quantity as a decimal fraction: "0.5".
func decimal(quantity string) string {
	q, err := resource.ParseQuantity(quantity)
	if err != nil {
		return quantity
	}
	return strconv.FormatFloat(q.AsApproximateFloat64(), 'f', -1, 64)
}
