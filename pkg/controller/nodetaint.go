package controller

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1beta1"
)

// enforce sets the taint and the monitoring labels of the Node that a state needs. Device taints
// are in the ResourceSlices, which the node's plugin writes.
func (r *Reconciler) enforce(ctx context.Context, gpuNode *v1beta1.GPUNode, node *corev1.Node) error {
	sw := gpuNode.Status.Switch
	var taint *corev1.Taint
	if sw.Policy.NodeTaintEffect == v1beta1.NodeTaintNoSchedule || sw.NodeTaintRequired || sw.RebootRequired {
		taint = &corev1.Taint{Key: names.TaintNodeSwitching, Value: sw.To.ProfileName, Effect: corev1.TaintEffectNoSchedule}
	}
	probe := node.DeepCopy()
	setNode(probe, taint, sw.PausedLabels, r.PauseLabels)
	if sameTaintsAndLabels(probe, node) {
		return nil
	}
	return r.patchNode(ctx, gpuNode.Name, func(n *corev1.Node) {
		setNode(n, taint, sw.PausedLabels, r.PauseLabels)
		n.DeepCopyInto(node)
	})
}

// release removes our taint from a node and unpauses its monitoring pods. sw is the switch that set
// them, nil if it is not known.
func (r *Reconciler) release(ctx context.Context, name string, sw *v1beta1.Switch) error {
	node, err := r.nodeOf(ctx, name)
	if err != nil {
		return err
	}
	keys := r.PauseLabels
	var paused map[string]string
	if sw != nil {
		paused = sw.PausedLabels
		for key := range paused {
			keys = append(keys[:len(keys):len(keys)], key)
		}
	}
	// The cache can be outdated only for a node that a known switch has tainted.
	if sw == nil && !leftover(node, keys) {
		return nil
	}
	return r.patchNode(ctx, name, func(n *corev1.Node) {
		unpause(n, paused)
		setNode(n, nil, nil, keys)
	})
}
