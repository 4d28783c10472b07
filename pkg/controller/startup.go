package controller

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1beta1"
)

// A node with the start-up taint waits for its ResourceSlices after its profile is applied: the
// plugin reports before the API server has all of them. It looks after firstStartupLook, and
// ever more seldom, up to lastStartupLook: the driver of its GPUs may not be installed yet.
const (
	firstStartupLook = time.Second
	lastStartupLook  = 30 * time.Second
)

// start removes the start-up taint of a node whose desired profile is applied and whose
// devices are published. It returns when to look again, never if it is zero.
func (r *Reconciler) start(ctx context.Context, gpuNode *v1beta1.GPUNode, node *corev1.Node) (time.Time, error) {
	ready := meta.FindStatusCondition(gpuNode.Status.Conditions, names.ConditionReady)
	if !hasTaint(node, r.StartupTaint) || ready == nil || ready.Status != metav1.ConditionTrue {
		return time.Time{}, nil
	}
	now := r.Clock.Now()
	waited := min(now.Sub(ready.LastTransitionTime.Time), now.Sub(node.CreationTimestamp.Time))
	next := now.Add(min(max(firstStartupLook, waited/4), lastStartupLook))
	found, err := r.slicesOf(ctx, gpuNode.Name)
	if err != nil {
		return time.Time{}, err
	}
	for i := range found {
		// The GPUNode and the slices of an earlier node with this name can still exist.
		if !ownedBy(found[i].OwnerReferences, node) {
			return next, nil
		}
	}
	if len(found) == 0 || differs(gpuNode.Name, gpuNode.Status.Node, found) != "" {
		return next, nil
	}
	return time.Time{}, r.patchNode(ctx, gpuNode.Name, func(n *corev1.Node) {
		n.Spec.Taints = slices.DeleteFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == r.StartupTaint })
	})
}

func ownedBy(owners []metav1.OwnerReference, node *corev1.Node) bool {
	return slices.ContainsFunc(owners, func(o metav1.OwnerReference) bool { return o.UID == node.UID })
}

// hasTaint reports whether a node has a taint with this key. No node has one without a key.
func hasTaint(node *corev1.Node, key string) bool {
	return key != "" && slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == key })
}
