package nvidia

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// What the GPU operator writes on a node while it replaces the driver. Only
// administrators and the operator can write there.
const (
	// Its driver manager gives the labels by which it places its pods a value that
	// contains pausedForUpgrade, before it unloads the module
	// (NVIDIA/k8s-driver-manager, cmd/driver-manager: maybeSetPaused).
	deployLabels     = "nvidia.com/gpu.deploy."
	pausedForUpgrade = "paused-for-driver-upgrade"
	// Its upgrade controller sets this label to podRestartRequired when pods with GPUs
	// have left, until the driver's new pod is ready (NVIDIA/k8s-operator-libs,
	// pkg/upgrade/consts.go). In the states before, pods still leave, and what they
	// hold is released with the driver.
	upgradeLabel       = "nvidia.com/gpu-driver-upgrade-state"
	podRestartRequired = "pod-restart-required"
)

// UpgradeSignal implements hardware.Vendor.
func (v Vendor) UpgradeSignal(node *corev1.Node) string {
	for _, key := range slices.Sorted(maps.Keys(node.Labels)) {
		value := node.Labels[key]
		if strings.HasPrefix(key, deployLabels) && strings.Contains(value, pausedForUpgrade) ||
			key == upgradeLabel && value == podRestartRequired {
			return fmt.Sprintf("the node's label %s=%s", key, value)
		}
	}
	return ""
}
