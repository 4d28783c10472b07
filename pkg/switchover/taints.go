package switchover

import (
	"context"
	"errors"
	"fmt"
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/pkg/gpu"
)

// ruleOf is the rule that keeps new pods off a card.
func ruleOf(node, card, profile string) *resourceapi.DeviceTaintRule {
	return &resourceapi.DeviceTaintRule{
		ObjectMeta: metav1.ObjectMeta{
			Name:        ruleName(node, card),
			Labels:      map[string]string{NodeLabel: nodeLabelValue(node), ManagedByLabel: ManagedBy},
			Annotations: map[string]string{NodeLabel: node},
		},
		Spec: resourceapi.DeviceTaintRuleSpec{
			DeviceSelector: &resourceapi.DeviceTaintSelector{
				Driver: ptr.To(gpu.DriverName), Pool: ptr.To(gpu.PoolName(node, card)),
			},
			Taint: resourceapi.DeviceTaint{Key: TaintKey, Value: taintValue(profile), Effect: resourceapi.DeviceTaintEffectNoSchedule},
		},
	}
}

// nodeOf is the node that a rule of ours is for.
func nodeOf(rule metav1.Object) string {
	if node := rule.GetAnnotations()[NodeLabel]; node != "" {
		return node
	}
	return rule.GetLabels()[NodeLabel]
}

// errNoRules is that the API server has no DeviceTaintRules.
var errNoRules = errors.New("the API server has no DeviceTaintRule of resource.k8s.io/v1")

// rulesOf reads the rules of ours for a node.
func (r *Reconciler) rulesOf(ctx context.Context, node string) ([]resourceapi.DeviceTaintRule, error) {
	if !r.DeviceTaintRules {
		return nil, nil
	}
	var rules resourceapi.DeviceTaintRuleList
	err := r.Reader.List(ctx, &rules, client.MatchingLabels{NodeLabel: nodeLabelValue(node), ManagedByLabel: ManagedBy})
	if meta.IsNoMatchError(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list the DeviceTaintRules for node %s: %w", node, err)
	}
	// Two long names may share a label.
	return slices.DeleteFunc(rules.Items, func(rule resourceapi.DeviceTaintRule) bool { return nodeOf(&rule) != node }), nil
}

// taintCards makes the rules of a node's cards be what they should be, and removes
// others of ours.
func (r *Reconciler) taintCards(ctx context.Context, node string, cards []string, profile string) error {
	if !r.DeviceTaintRules {
		return errNoRules
	}
	there, err := r.rulesOf(ctx, node)
	if err != nil {
		return err
	}
	byName := map[string]*resourceapi.DeviceTaintRule{}
	for i := range there {
		byName[there[i].Name] = &there[i]
	}
	for _, card := range cards {
		want := ruleOf(node, card, profile)
		if err := r.putRule(ctx, want, byName[want.Name]); err != nil {
			return err
		}
		delete(byName, want.Name)
	}
	for _, rule := range byName {
		if err := r.deleteRule(ctx, rule); err != nil {
			return err
		}
	}
	return nil
}

// putRule makes one rule be what it should be. There is nil if it was not found by its
// labels.
func (r *Reconciler) putRule(ctx context.Context, want, there *resourceapi.DeviceTaintRule) error {
	if there == nil {
		err := r.Client.Create(ctx, want.DeepCopy())
		if meta.IsNoMatchError(err) || apierrors.IsMethodNotSupported(err) {
			return errNoRules
		}
		if !apierrors.IsAlreadyExists(err) {
			return wrap(err, "create the DeviceTaintRule %s", want.Name)
		}
		there = &resourceapi.DeviceTaintRule{}
		if err := r.Reader.Get(ctx, client.ObjectKeyFromObject(want), there); err != nil {
			return fmt.Errorf("read the DeviceTaintRule %s: %w", want.Name, err)
		}
		if there.Spec.Taint.Key != TaintKey {
			return fmt.Errorf("a DeviceTaintRule %s is there already and has another taint (%s): it is not Tranche's; give it another name", want.Name, there.Spec.Taint.Key)
		}
	}
	if there.DeletionTimestamp != nil {
		return fmt.Errorf("DeviceTaintRule %s is being deleted, and finalizers keep it: %s", want.Name, list(there.Finalizers))
	}
	changed := there.DeepCopy()
	changed.Spec.DeviceSelector = want.Spec.DeviceSelector
	changed.Spec.Taint.Key, changed.Spec.Taint.Value, changed.Spec.Taint.Effect = want.Spec.Taint.Key, want.Spec.Taint.Value, want.Spec.Taint.Effect
	metav1.SetMetaDataLabel(&changed.ObjectMeta, NodeLabel, want.Labels[NodeLabel])
	metav1.SetMetaDataLabel(&changed.ObjectMeta, ManagedByLabel, ManagedBy)
	metav1.SetMetaDataAnnotation(&changed.ObjectMeta, NodeLabel, want.Annotations[NodeLabel])
	if equality.Semantic.DeepEqual(changed, there) {
		return nil
	}
	return wrap(r.Client.Update(ctx, changed), "put back the DeviceTaintRule %s, which somebody has changed", want.Name)
}

func (r *Reconciler) deleteRule(ctx context.Context, rule *resourceapi.DeviceTaintRule) error {
	err := r.Client.Delete(ctx, rule, client.Preconditions{UID: &rule.UID})
	return wrap(client.IgnoreNotFound(err), "delete the DeviceTaintRule %s", rule.Name)
}

// untaintCards deletes all rules of ours for a node. Those of the cards that were
// tainted are found by name, too, should somebody have taken their labels off.
func (r *Reconciler) untaintCards(ctx context.Context, node string, cards []string) error {
	if !r.DeviceTaintRules {
		return nil
	}
	there, err := r.rulesOf(ctx, node)
	if err != nil {
		return err
	}
	deleted := map[string]bool{}
	for i := range there {
		if err := r.deleteRule(ctx, &there[i]); err != nil {
			return err
		}
		deleted[there[i].Name] = true
	}
	for _, card := range cards {
		name := ruleName(node, card)
		if deleted[name] {
			continue
		}
		var rule resourceapi.DeviceTaintRule
		err := r.Reader.Get(ctx, client.ObjectKey{Name: name}, &rule)
		if apierrors.IsNotFound(err) || meta.IsNoMatchError(err) || err == nil && rule.Spec.Taint.Key != TaintKey {
			continue
		}
		if err == nil {
			err = r.deleteRule(ctx, &rule)
		}
		if err != nil {
			return fmt.Errorf("take back the DeviceTaintRule %s: %w", name, err)
		}
	}
	return nil
}

// wrap says what failed, if anything did.
func wrap(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf(format+": %w", append(args, err)...)
}
