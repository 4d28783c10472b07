package inventory

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/tranche-dev/tranche/api/names"
)

// WriteResources writes the resources of the node's GPUs into its status if they are not there.
// Without wanted, it removes them.
//
// A kubelet that registers a node whose folder of device plugins is empty sets extended resources to
// zero (kubelet_node_status.go, reconcileExtendedResource), and others may change them, so this is
// called again and again.
func (w *Node) WriteResources(ctx context.Context, client kubernetes.Interface, wanted corev1.ResourceList) error {
	status := &w.node().Status
	capacity, allocatable := resourceChanges(status.Capacity, wanted), resourceChanges(status.Allocatable, wanted)
	if len(capacity) == 0 && len(allocatable) == 0 {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"capacity": capacity, "allocatable": allocatable}})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	if _, err := client.CoreV1().Nodes().Patch(ctx, w.name, types.MergePatchType, patch, metav1.PatchOptions{}, "status"); err != nil {
		return fmt.Errorf("write the GPU resources into the status of node %s: %w", w.name, err)
	}
	return nil
}

// NotLess returns wanted, with at least what the node has of each resource.
func (w *Node) NotLess(wanted corev1.ResourceList) corev1.ResourceList {
	out := maps.Clone(wanted)
	for name := range out {
		if have := w.node().Status.Capacity[name]; have.Cmp(out[name]) > 0 {
			out[name] = have
		}
	}
	return out
}

// resourceChanges returns what must change of our resources in a list, as a merge patch.
func resourceChanges(have, wanted corev1.ResourceList) map[corev1.ResourceName]any {
	changes := map[corev1.ResourceName]any{}
	for _, name := range []corev1.ResourceName{names.ResourceGPUMemory, names.ResourceGPUCompute} {
		now, exists := have[name]
		want, wants := wanted[name]
		switch {
		case wants && (!exists || now.Cmp(want) != 0):
			changes[name] = want
		case !wants && exists:
			changes[name] = nil
		}
	}
	return changes
}
