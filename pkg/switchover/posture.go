package switchover

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/tranche-dev/tranche/api/v1alpha1"
)

// ruleKind is that of DeviceTaintRules, of which the cache has names and labels only.
var ruleKind = schema.GroupVersionKind{Group: resourceapi.GroupName, Version: "v1", Kind: "DeviceTaintRule"}

// enforce puts in force what a tainting state needs: taint rules, the node's taint,
// paused clients. Trouble says what is not as it should be without being an error.
func (r *Reconciler) enforce(ctx context.Context, gpuNode *v1alpha1.GPUNode, node *corev1.Node) (trouble string, err error) {
	sw := gpuNode.Status.Switch
	var taint *corev1.Taint
	if sw.Policy.NodeTaint || sw.NodeTaint || gpuNode.Status.State == v1alpha1.Rebooting || rebootAsked(gpuNode) {
		taint = &corev1.Taint{Key: TaintKey, Value: taintValue(sw.To.Profile), Effect: corev1.TaintEffectNoSchedule}
	}
	err = r.taintCards(ctx, gpuNode.Name, sw.Cards, sw.To.Profile)
	if errors.Is(err, errNoRules) {
		trouble = "the API server has no DeviceTaintRule (resource.k8s.io/v1), so the whole node is tainted in place of its cards"
		taint = &corev1.Taint{Key: TaintKey, Value: taintValue(sw.To.Profile), Effect: corev1.TaintEffectNoSchedule}
	} else if err != nil {
		return "", err
	}
	probe := node.DeepCopy()
	setNode(probe, taint, sw.Paused, r.PauseLabels)
	if sameTaintsAndLabels(probe, node) {
		return trouble, nil
	}
	err = r.patchNode(ctx, gpuNode.Name, func(n *corev1.Node) {
		setNode(n, taint, sw.Paused, r.PauseLabels)
		// The next look is at what is there now.
		n.DeepCopyInto(node)
	})
	return trouble, err
}

// rebootAsked tells whether the switch drains the node to reboot it.
func rebootAsked(gpuNode *v1alpha1.GPUNode) bool {
	t := turn{node: gpuNode.Status.Node}
	t.Status = gpuNode.Status
	return t.node != nil && t.rebootNeeded()
}

// release takes everything of ours off a node: rules, taint, paused labels. The switch
// is the one that has put it there, nil: none that is known.
func (r *Reconciler) release(ctx context.Context, name string, sw *v1alpha1.Switch) error {
	node, err := r.nodeOf(ctx, name)
	if err != nil {
		return err
	}
	var cards []string
	keys := r.PauseLabels
	var paused map[string]string
	if sw != nil {
		cards, paused = sw.Cards, sw.Paused
		for key := range paused {
			keys = append(keys[:len(keys):len(keys)], key)
		}
	}
	found, err := r.cachedRules(ctx, name)
	if err != nil {
		return err
	}
	// A cache may be late for a node that was tainted, not for one that was not.
	if found || len(cards) > 0 {
		if err := r.untaintCards(ctx, name, cards); err != nil {
			return err
		}
	}
	if !leftover(node, keys) && len(cards) == 0 {
		return nil
	}
	return r.patchNode(ctx, name, func(n *corev1.Node) {
		unpause(n, paused)
		setNode(n, nil, nil, keys)
	})
}

// cachedRules tells whether there are rules of ours for a node, as far as the cache
// knows.
func (r *Reconciler) cachedRules(ctx context.Context, node string) (bool, error) {
	if !r.DeviceTaintRules {
		return false, nil
	}
	var rules metav1.PartialObjectMetadataList
	rules.SetGroupVersionKind(ruleKind)
	err := r.Client.List(ctx, &rules, client.MatchingLabels{NodeLabel: nodeLabelValue(node), ManagedByLabel: ManagedBy})
	if err != nil {
		return false, fmt.Errorf("list the DeviceTaintRules for node %s: %w", node, err)
	}
	for i := range rules.Items {
		if nodeOf(&rules.Items[i]) == node {
			return true, nil
		}
	}
	return false, nil
}
