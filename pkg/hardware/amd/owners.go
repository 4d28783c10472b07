package amd

import (
	"regexp"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/tranche-dev/tranche/pkg/hardware"
)

const (
	// draDriver is the name of AMD's DRA driver.
	draDriver = "gpu.amd.com"
	// configManagerProgram is the program of AMD's device config manager in its container
	// (ROCm/device-config-manager, docker/entrypoint.sh).
	configManagerProgram = "/home/amd/bin/server"
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
func (v Vendor) OwnerPrograms() []string { return []string{configManagerProgram} }

// Owners implements hardware.Vendor. The label by which the device config manager is told
// what to do (dcm.amd.com/gpu-config-profile) proves nothing: it stays when the program is gone.
func (v Vendor) Owners(e hardware.Evidence) []hardware.Owner {
	owners := slices.Concat(
		e.DevicePlugin(pluginResources, "keep the AMD device plugin off this node (with the GPU operator: spec.devicePlugin.enableDevicePlugin=false, or a spec.selector that leaves the node out)"),
		e.DRADriver(draDriver, "keep AMD's DRA driver off this node (with the GPU operator: spec.draDriver.enable=false, or a spec.draDriver.selector that leaves the node out)"),
	)
	if slices.Contains(e.Running, configManagerProgram) {
		owners = append(owners, hardware.Owner{
			Name:   "device-config-manager",
			Found:  "process " + configManagerProgram + " of AMD's device config manager runs here",
			Remedy: "keep the device config manager off this node (with the GPU operator: spec.configManager.enable=false, or a spec.configManager.selector that leaves the node out)",
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
