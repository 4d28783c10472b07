package nvidia

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/tranche-dev/tranche/pkg/gpu"
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

// The labels of NVIDIA's feature discovery, as far as tools outside NVIDIA's stack read
// them.
const (
	labelProduct = "nvidia.com/gpu.product"
	labelCount   = "nvidia.com/gpu.count"
	labelMemory  = "nvidia.com/gpu.memory"
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

// NodeLabels implements hardware.Vendor, with the values of NVIDIA's feature discovery: the
// product with dashes for spaces, the memory of one GPU in MiB. If the products differ there
// is no product label, because selectors would choose wrong GPUs, and the memory is the
// smallest one, which every pod gets at least.
func (v Vendor) NodeLabels(gpus []gpu.GPU) map[string]string {
	labels := map[string]string{labelProduct: "", labelCount: "", labelMemory: ""}
	if len(gpus) == 0 {
		return labels
	}
	var products []string
	memory := int64(0)
	for i := range gpus {
		products = append(products, strings.Join(strings.Fields(gpus[i].ProductName), "-"))
		if memory == 0 || gpus[i].Memory < memory {
			memory = gpus[i].Memory
		}
	}
	labels[labelCount] = strconv.Itoa(len(gpus))
	if memory > 0 {
		labels[labelMemory] = strconv.FormatInt(memory>>20, 10)
	}
	if slices.Sort(products); len(slices.Compact(products)) == 1 {
		labels[labelProduct] = products[0]
	}
	return labels
}
