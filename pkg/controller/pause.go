package controller

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/api/names"
)

// pausable returns the labels of a node that start monitoring pods, with their values. Only "true" starts
// one; with other values it does not run, or was paused by somebody else.
func pausable(labels map[string]string, keys []string) map[string]string {
	var out map[string]string
	for _, key := range keys {
		if labels[key] == "true" {
			if out == nil {
				out = map[string]string{}
			}
			out[key] = "true"
		}
	}
	return out
}

// setNode sets or removes our taint and the labels that pause monitoring pods. Nothing else of the
// node changes.
func setNode(node *corev1.Node, taint *corev1.Taint, paused map[string]string, keys []string) {
	without := slices.DeleteFunc(slices.Clone(node.Spec.Taints), func(t corev1.Taint) bool {
		return t.Key == names.TaintNodeSwitching && (taint == nil || t.Value != taint.Value || t.Effect != taint.Effect)
	})
	if len(without) != len(node.Spec.Taints) {
		node.Spec.Taints = without
	}
	if taint != nil && !hasNodeTaint(node) {
		node.Spec.Taints = append(slices.Clone(node.Spec.Taints), *taint)
	}
	for key, was := range paused {
		if node.Labels[key] == was {
			node.Labels[key] = names.PausedValue
		}
	}
	// Also labels that a controller changed before it crashed.
	for _, key := range keys {
		if _, pause := paused[key]; !pause && node.Labels[key] == names.PausedValue {
			node.Labels[key] = "true"
		}
	}
}

// unpause restores labels that nobody else has changed.
func unpause(node *corev1.Node, paused map[string]string) {
	for key, was := range paused {
		if node.Labels[key] == names.PausedValue {
			node.Labels[key] = was
		}
	}
}

// leftover reports whether a node has our taint or a paused monitoring pod.
func leftover(node *corev1.Node, keys []string) bool {
	return hasNodeTaint(node) || slices.ContainsFunc(keys, func(key string) bool { return node.Labels[key] == names.PausedValue })
}

// patchNode reads and changes a node. It is no error if the node does not exist.
func (r *Reconciler) patchNode(ctx context.Context, name string, change func(*corev1.Node)) error {
	var node corev1.Node
	if err := r.Reader.Get(ctx, client.ObjectKey{Name: name}, &node); err != nil {
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("read node %s: %w", name, err)
	}
	before := node.DeepCopy()
	change(&node)
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if same, err := unchanged(patch, &node); err != nil || same {
		return err
	}
	return wrap(client.IgnoreNotFound(r.Client.Patch(ctx, &node, patch)), "patch the taint and the labels of node %s", name)
}

// report writes the labels of a Node in which other projects report progress.
func (r *Reconciler) report(ctx context.Context, node *corev1.Node, labels map[string]string) error {
	if node.UID == "" || hasLabels(node, labels) {
		return nil
	}
	return r.patchNode(ctx, node.Name, func(n *corev1.Node) {
		for key, value := range labels {
			metav1.SetMetaDataLabel(&n.ObjectMeta, key, value)
		}
		n.DeepCopyInto(node)
	})
}

func hasLabels(node *corev1.Node, labels map[string]string) bool {
	for key, value := range labels {
		if node.Labels[key] != value {
			return false
		}
	}
	return true
}

// unchanged reports whether a patch with an optimistic lock is empty.
func unchanged(patch client.Patch, o client.Object) (bool, error) {
	data, err := patch.Data(o)
	if err != nil {
		return false, fmt.Errorf("compute the patch of node %s: %w", o.GetName(), err)
	}
	return string(data) == fmt.Sprintf(`{"metadata":{"resourceVersion":%q}}`, o.GetResourceVersion()), nil
}

func sameTaintsAndLabels(a, b *corev1.Node) bool {
	return equality.Semantic.DeepEqual(a.Spec.Taints, b.Spec.Taints) && equality.Semantic.DeepEqual(a.Labels, b.Labels)
}
