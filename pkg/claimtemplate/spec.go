package claimtemplate

import (
	"fmt"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/claimconfig"
	"github.com/tranche-dev/tranche/pkg/gpu"
)

const (
	// requestName is the name of the request of each template.
	requestName = "gpu"
	classSuffix = ".tranche.dev"
)

// Spec returns the spec of claims that are created from the template.
func (r *Request) Spec() resourceapi.ResourceClaimSpec {
	exactly := &resourceapi.ExactDeviceRequest{
		AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: r.Count,
	}
	amounts := map[resourceapi.QualifiedName]resource.Quantity{}
	share := ""
	switch {
	case r.Fraction != 0:
		share = "fraction-share-"
		amounts[names.CapacityFraction] = *resource.NewMilliQuantity(r.Fraction, resource.DecimalSI)
	case r.Memory != 0:
		share = "memory-share-"
		amounts[names.CapacityMemory] = *resource.NewQuantity(r.Memory*gpu.MiB, resource.BinarySI)
	}
	exactly.DeviceClassName = "gpu-" + share + string(r.Vendor) + classSuffix
	if r.Compute != 0 {
		amounts[names.CapacityComputePercent] = *resource.NewQuantity(r.Compute, resource.DecimalSI)
	}
	if len(amounts) > 0 {
		exactly.Capacity = &resourceapi.CapacityRequirements{Requests: amounts}
	}
	for _, expression := range r.selectors() {
		exactly.Selectors = append(exactly.Selectors, resourceapi.DeviceSelector{CEL: &resourceapi.CELDeviceSelector{Expression: expression}})
	}
	devices := resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{{Name: requestName, Exactly: exactly}}}
	// Otherwise several shares could be of the same GPU. Whole GPUs always differ.
	if r.Count > 1 && share != "" {
		devices.Constraints = []resourceapi.DeviceConstraint{{
			Requests:          []string{requestName},
			DistinctAttribute: ptr.To(resourceapi.FullyQualifiedName(names.DriverName + "/" + names.AttributeUUID)),
		}}
	}
	if r.Limit != 0 {
		devices.Config = []resourceapi.DeviceClaimConfiguration{claimconfig.New(r.Limit)}
	}
	return resourceapi.ResourceClaimSpec{Devices: devices}
}

// selectors returns CEL expressions that a device must satisfy. Terms of one kind form one regular
// expression, because the API server limits the cost of a selector.
func (r *Request) selectors() (all []string) {
	if r.MPS {
		all = append(all, has(names.AttributeSharingStrategy)+` && `+attribute(names.AttributeSharingStrategy)+` == "MPS"`)
	}
	for _, kind := range []struct {
		of   TermKind
		text string
	}{
		{Type, has(names.AttributeProductName) + ` && ` + attribute(names.AttributeProductName) + `.matches("(?i)(%s)")`},
		{NotType, `!(` + has(names.AttributeProductName) + ` && ` + attribute(names.AttributeProductName) + `.matches("(?i)(%s)"))`},
		{UUID, has(names.AttributeUUID) + ` && ` + attribute(names.AttributeUUID) + `.matches("(?i)^(%s)$")`},
		{NotUUID, `!(` + has(names.AttributeUUID) + ` && ` + attribute(names.AttributeUUID) + `.matches("(?i)^(%s)$"))`},
	} {
		var values []string
		for _, t := range r.Terms {
			if t.Kind == kind.of {
				values = append(values, t.Value)
			}
		}
		if len(values) > 0 {
			all = append(all, fmt.Sprintf(kind.text, strings.ReplaceAll(strings.Join(values, "|"), "-", "[ _-]")))
		}
	}
	return all
}

// has returns an expression for whether a device has an attribute. Reading a missing one is an error.
func has(name string) string {
	return fmt.Sprintf("%q in device.attributes[%q]", name, names.DriverName)
}

// attribute returns an expression for a string attribute. With orValue its cost could not be limited.
func attribute(name string) string {
	return fmt.Sprintf("device.attributes[%q].%s", names.DriverName, name)
}
