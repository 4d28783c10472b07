package node

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
)

// owner is another system that serves the NVIDIA cards of this node. Two
// systems on one card would give it out twice, or cut it under a running pod.
type owner struct {
	// name is short enough for a taint's value.
	name string
	// found is what gave it away.
	found string
	// remedy is what a person can do.
	remedy string
}

// nvidiaDRADriver is the name of NVIDIA's own DRA driver.
const nvidiaDRADriver = "gpu.nvidia.com"

// migManagerLabels select the pods of the GPU operator's mig-manager.
const migManagerLabels = "app=nvidia-mig-manager"

// findOwners looks for other systems in what the API server knows about the
// node: its allocatable resources, the slices of NVIDIA's DRA driver, and the
// pods of mig-manager.
func findOwners(node *corev1.Node, slices []*resourceapi.ResourceSlice, migManagers []*corev1.Pod) []owner {
	var owners []owner
	if resources := pluginResources(node); len(resources) > 0 {
		owners = append(owners, owner{
			name:   "device-plugin",
			found:  "a device plugin serves " + strings.Join(resources, ", ") + " here",
			remedy: "keep the NVIDIA device plugin off this node (with the GPU operator: label nvidia.com/gpu.deploy.device-plugin=false)",
		})
	}
	if hasDevices(slices) {
		owners = append(owners, owner{
			name:   nvidiaDRADriver,
			found:  "DRA driver " + nvidiaDRADriver + " publishes devices of this node",
			remedy: "keep NVIDIA's DRA driver off this node (its chart: resources.gpus.enabled=false)",
		})
	}
	for _, pod := range migManagers {
		if pod.Status.Phase == corev1.PodRunning {
			owners = append(owners, owner{
				name:   "mig-manager",
				found:  fmt.Sprintf("pod %s/%s of mig-manager runs here", pod.Namespace, pod.Name),
				remedy: "keep mig-manager off this node (label nvidia.com/gpu.deploy.mig-manager=false)",
			})
			break
		}
	}
	return owners
}

func pluginResources(node *corev1.Node) []string {
	if node == nil {
		return nil
	}
	var found []string
	for name, quantity := range node.Status.Allocatable {
		s := string(name)
		if (s == "nvidia.com/gpu" || s == "nvidia.com/gpu.shared" || strings.HasPrefix(s, "nvidia.com/mig-")) && !quantity.IsZero() {
			found = append(found, s+": "+quantity.String())
		}
	}
	slices.Sort(found)
	return found
}

func hasDevices(slices []*resourceapi.ResourceSlice) bool {
	for _, s := range slices {
		if len(s.Spec.Devices) > 0 {
			return true
		}
	}
	return false
}
