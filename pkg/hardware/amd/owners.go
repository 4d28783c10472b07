package amd

import (
	"regexp"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware"
)

const (
	// draDriver is the name of AMD's DRA driver.
	draDriver = "gpu.amd.com"
	// configManagerLabel is the node label that tells AMD's device config manager
	// which modes to switch the GPUs to (ROCm/device-config-manager,
	// internal/constants: it works where the label is set).
	configManagerLabel = "dcm.amd.com/gpu-config-profile"
	// upgradeTaint is what AMD's GPU operator keeps on a node from before it drains it
	// until its new driver is loaded (ROCm/gpu-operator,
	// internal/controllers/upgrademgr.go: addOrRemoveTaintToNode).
	upgradeTaint = "amd-gpu-driver-upgrade"
)

// pluginResources matches what AMD's device plugin calls its resources: one name for all,
// or one for each pair of modes (ROCm/k8s-device-plugin, resource_naming_strategy).
var pluginResources = regexp.MustCompile(`^amd\.com/(gpu|[sdtqc]px_nps[0-9]+)$`)

// OwnerDRADrivers implements hardware.Vendor.
func (v Vendor) OwnerDRADrivers() []string { return []string{draDriver} }

// OwnerPrograms implements hardware.Vendor.
func (v Vendor) OwnerPrograms() []string { return nil }

// Owners implements hardware.Vendor.
func (v Vendor) Owners(e hardware.Evidence) []hardware.Owner {
	owners := slices.Concat(
		e.DevicePlugin(pluginResources, "keep the AMD device plugin off this node (with the GPU operator: spec.devicePlugin.enableDevicePlugin=false, or a spec.selector that leaves the node out)"),
		e.DRADriver(draDriver, "keep AMD's DRA driver off this node (with the GPU operator: spec.draDriver.enable=false, or a spec.draDriver.selector that leaves the node out)"),
	)
	if profile := e.Label(configManagerLabel); profile != "" {
		owners = append(owners, hardware.Owner{
			Name:   "device-config-manager",
			Found:  "its label " + configManagerLabel + "=" + profile + " lets AMD's device config manager switch their modes",
			Remedy: "keep the device config manager off this node (remove label " + configManagerLabel + ")",
		})
	}
	return owners
}

// UpgradeSignal implements hardware.Vendor.
func (v Vendor) UpgradeSignal(node *corev1.Node) string {
	if slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == upgradeTaint }) {
		return "the node's taint " + upgradeTaint
	}
	return ""
}

// NodeLabels implements hardware.Vendor. There are none: AMD's node labeller has labels of
// its own, and can run beside Tranche because it touches no GPU.
func (v Vendor) NodeLabels([]gpu.GPU) map[string]string { return nil }
