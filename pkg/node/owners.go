package node

import (
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/tranche-dev/tranche/pkg/gpu"
)

// owner is another system that serves one vendor's GPUs of this node. Two
// systems on one GPU would give it out twice, or cut it under a running pod.
type owner struct {
	// vendor is whose GPUs it serves.
	vendor gpu.Vendor
	// name is short enough for a taint's value.
	name string
	// found is what gave it away.
	found string
	// remedy is what a person can do.
	remedy string
}

// The vendors' own DRA drivers.
const (
	nvidiaDRADriver = "gpu.nvidia.com"
	amdDRADriver    = "gpu.amd.com"
)

// draDrivers are the vendors' own DRA drivers, with what keeps them off a node.
var draDrivers = []owner{
	{vendor: gpu.NVIDIA, name: nvidiaDRADriver, remedy: "keep NVIDIA's DRA driver off this node (its chart: resources.gpus.enabled=false)"},
	{vendor: gpu.AMD, name: amdDRADriver, remedy: "keep AMD's DRA driver off this node (with the GPU operator: spec.draDriver.enable=false, or a spec.draDriver.selector that leaves the node out)"},
}

// configManagerLabel is the node label that tells AMD's device config manager
// which modes to switch the GPUs to (ROCm/device-config-manager,
// internal/constants: it works where the label is set).
const configManagerLabel = "dcm.amd.com/gpu-config-profile"

// amdResource matches what AMD's device plugin calls its resources: one name for
// all, or one for each pair of modes (ROCm/k8s-device-plugin,
// resource_naming_strategy).
var amdResource = regexp.MustCompile(`^amd\.com/(gpu|[sdtqc]px_nps[0-9]+)$`)

// nvidiaResource matches what NVIDIA's device plugin calls its resources.
var nvidiaResource = regexp.MustCompile(`^nvidia\.com/(gpu|gpu\.shared|mig-.*)$`)

// findOwners looks for other systems in what the API server knows about the
// node: its labels and allocatable resources, and the slices of the vendors' DRA
// drivers. migManager tells whether the process of mig-manager runs. All of it is
// written by administrators and node agents; nothing that a tenant can write counts.
func findOwners(node *corev1.Node, slices []*resourceapi.ResourceSlice, migManager bool) []owner {
	var owners []owner
	if resources := pluginResources(node, nvidiaResource); len(resources) > 0 {
		owners = append(owners, owner{
			vendor: gpu.NVIDIA,
			name:   "device-plugin",
			found:  "a device plugin serves " + strings.Join(resources, ", ") + " here",
			remedy: "keep the NVIDIA device plugin off this node (with the GPU operator: label nvidia.com/gpu.deploy.device-plugin=false)",
		})
	}
	if resources := pluginResources(node, amdResource); len(resources) > 0 {
		owners = append(owners, owner{
			vendor: gpu.AMD,
			name:   "device-plugin",
			found:  "a device plugin serves " + strings.Join(resources, ", ") + " here",
			remedy: "keep the AMD device plugin off this node (with the GPU operator: spec.devicePlugin.enableDevicePlugin=false, or a spec.selector that leaves the node out)",
		})
	}
	for _, driver := range draDrivers {
		if hasDevices(slices, driver.name) {
			driver.found = "DRA driver " + driver.name + " publishes devices of this node"
			owners = append(owners, driver)
		}
	}
	if o, ok := migManagerOwner(node, migManager); ok {
		owners = append(owners, o)
	}
	if profile := profileOf(node); profile != "" {
		owners = append(owners, owner{
			vendor: gpu.AMD,
			name:   "device-config-manager",
			found:  "its label " + configManagerLabel + "=" + profile + " lets AMD's device config manager switch their modes",
			remedy: "keep the device config manager off this node (remove label " + configManagerLabel + ")",
		})
	}
	return owners
}

// profileOf is what the device config manager is told to do with the node.
func profileOf(node *corev1.Node) string {
	if node == nil {
		return ""
	}
	return node.Labels[configManagerLabel]
}

func pluginResources(node *corev1.Node, names *regexp.Regexp) []string {
	if node == nil {
		return nil
	}
	var found []string
	for name, quantity := range node.Status.Allocatable {
		if names.MatchString(string(name)) && !quantity.IsZero() {
			found = append(found, string(name)+": "+quantity.String())
		}
	}
	slices.Sort(found)
	return found
}

func hasDevices(slices []*resourceapi.ResourceSlice, driver string) bool {
	for _, s := range slices {
		if s.Spec.Driver == driver && len(s.Spec.Devices) > 0 {
			return true
		}
	}
	return false
}

// owners are the other systems on a node.
type owners []owner

// of are those that serve a vendor's GPUs.
func (all owners) of(v gpu.Vendor) owners {
	return slices.DeleteFunc(slices.Clone(all), func(o owner) bool { return o.vendor != v })
}

// names is their names, as a taint's value.
func (all owners) names() string {
	names := make([]string, len(all))
	for i, o := range all {
		names[i] = o.name
	}
	return strings.Join(names, "_")
}
