package nvidia

import (
	"regexp"
	"slices"

	"github.com/tranche-dev/tranche/pkg/hardware"
)

const (
	// draDriver is the name of NVIDIA's DRA driver.
	draDriver = "gpu.nvidia.com"

	// migManagerProgram is the program of mig-manager (NVIDIA/mig-parted,
	// cmd/nvidia-mig-manager).
	migManagerProgram = "nvidia-mig-manager"
)

// pluginResources matches what NVIDIA's device plugin calls its resources.
var pluginResources = regexp.MustCompile(`^nvidia\.com/(gpu|gpu\.shared|mig-.*)$`)

// OwnerDRADrivers implements hardware.Vendor.
func (v Vendor) OwnerDRADrivers() []string { return []string{draDriver} }

// OwnerPrograms implements hardware.Vendor.
func (v Vendor) OwnerPrograms() []string { return []string{migManagerProgram} }

// Owners implements hardware.Vendor.
func (v Vendor) Owners(e hardware.Evidence) []hardware.Owner {
	return slices.Concat(
		e.DevicePlugin(pluginResources, "keep the NVIDIA device plugin off this node (with the GPU operator: label nvidia.com/gpu.deploy.device-plugin=false)"),
		e.DRADriver(draDriver, "keep NVIDIA's DRA driver off this node (its chart: resources.gpus.enabled=false; with a GPUCluster of the GPU operator: label nvidia.com/gpu.deploy.dra-driver=false)"),
		migManager(e),
	)
}

// migManager returns NVIDIA's mig-manager if it is on the node. It changes the MIG
// configuration of a node's GPUs as a node label requests. It is recognised by its
// privileged process. Names and labels of pods prove nothing, because tenants write them.
// Labels of the node prove nothing either: they stay when mig-manager is gone, Tranche's
// controller can write its nvidia.com/mig.config.state, and the GPU operator sets
// nvidia.com/gpu.deploy.mig-manager=true on each node with MIG.
func migManager(e hardware.Evidence) []hardware.Owner {
	if !slices.Contains(e.Running, migManagerProgram) {
		return nil
	}
	return []hardware.Owner{{
		Name:   "mig-manager",
		Found:  "process " + migManagerProgram + " of mig-manager runs here",
		Remedy: "keep mig-manager off this node (label nvidia.com/gpu.deploy.mig-manager=false)",
	}}
}
