package rollout

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/tranche-dev/tranche/api/v1beta1"
)

// ControlPlaneLabel marks the nodes of the control plane.
const ControlPlaneLabel = "node-role.kubernetes.io/control-plane"

// ControlPlane reports whether a node belongs to the control plane.
func ControlPlane(node *corev1.Node) bool {
	_, ok := node.Labels[ControlPlaneLabel]
	return ok
}

// NodeReady reports whether a node is ready. One that does not say is.
func NodeReady(node *corev1.Node) bool {
	return !slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue
	})
}

// ComparePlans compares plans by precedence: the first one is less.
func ComparePlans(a, b *v1beta1.PartitionPlan) int {
	return cmp.Or(cmp.Compare(b.Spec.Priority, a.Spec.Priority), a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
}

// Selector returns the selector of a plan.
func Selector(p *v1beta1.PartitionPlan) (labels.Selector, error) {
	if p.Spec.NodeSelector == nil {
		return labels.Nothing(), errors.New("spec.nodeSelector is missing: {} selects all nodes")
	}
	in := &metav1.LabelSelector{MatchLabels: p.Spec.NodeSelector.MatchLabels}
	for _, r := range p.Spec.NodeSelector.MatchExpressions {
		in.MatchExpressions = append(in.MatchExpressions, metav1.LabelSelectorRequirement(r))
	}
	s, err := metav1.LabelSelectorAsSelector(in)
	if err != nil {
		return labels.Nothing(), fmt.Errorf("spec.nodeSelector: %w", err)
	}
	return s, nil
}

// Selects reports whether a plan selects a node, by its labels.
func Selects(p *v1beta1.PartitionPlan, node *corev1.Node) bool {
	s, err := Selector(p)
	return err == nil && s.Matches(labels.Set(node.Labels))
}
