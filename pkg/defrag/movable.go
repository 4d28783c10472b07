package defrag

import (
	"fmt"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	schedulinghelper "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/cluster"
)

// movable describes a pod that may have to move.
func (p *Planner) movable(pod *corev1.Pod) *podInfo {
	name := nameOf(pod)
	if info := p.podInfos[name]; info != nil {
		return info
	}
	info := newPodInfo(pod)
	p.podInfos[name] = info
	for _, check := range []func(*podInfo) string{
		p.checkPermission, p.checkController, p.addFutureClaims, p.addHeldClaims, p.addVolumes, unsupportedConstraint, p.keptAway, p.addBudgets,
	} {
		if info.notMovable = check(info); info.notMovable != "" {
			break
		}
	}
	return info
}

// podOf returns the pod behind a holder of a device, nil if not exactly one pod holds it. notMovable is why
// it may not be moved for the waiting pod.
func (p *Planner) podOf(h cluster.Holder, waiting *podInfo) (pod *podInfo, notMovable string) {
	claim := p.claims[types.NamespacedName{Namespace: h.Namespace, Name: h.Claim}]
	if claim == nil || len(claim.Status.ReservedFor) != 1 || !cluster.ConsumerOf(claim.Status.ReservedFor[0]).IsPod() {
		return nil, fmt.Sprintf("ResourceClaim %s/%s is not used by exactly one pod", h.Namespace, h.Claim)
	}
	found := p.pods[types.NamespacedName{Namespace: h.Namespace, Name: claim.Status.ReservedFor[0].Name}]
	if found == nil {
		return nil, fmt.Sprintf("the pod of ResourceClaim %s/%s does not exist", h.Namespace, h.Claim)
	}
	pod = p.movable(found)
	limit, priority := schedulinghelper.PodPriority(waiting.Pod), schedulinghelper.PodPriority(found)
	switch {
	case pod.notMovable != "":
		notMovable = fmt.Sprintf("pod %s may not be moved: %s", pod, pod.notMovable)
	case priority > limit:
		notMovable = fmt.Sprintf("pod %s may not be moved: its priority %d is higher than that of the waiting pod, %d", pod, priority, limit)
	}
	return pod, notMovable
}

// Permissions tell which pods may be evicted. They have the namespaces whose label allows it.
type Permissions map[string]bool

// PermissionsOf returns the permissions that the labels of namespaces give.
func PermissionsOf(namespaces []corev1.Namespace) Permissions {
	p := Permissions{}
	for i := range namespaces {
		p[namespaces[i].Name] = namespaces[i].Labels[names.LabelDefragmentation] == names.ValueTrue
	}
	return p
}

// Allow reports whether the label of a pod, or else that of its namespace, allows evictions.
func (p Permissions) Allow(pod *corev1.Pod) bool {
	if value, labelled := pod.Labels[names.LabelDefragmentation]; labelled {
		return value == names.ValueTrue
	}
	return p[pod.Namespace]
}

// checkPermission says why a pod may not be evicted, empty if it may.
func (p *Planner) checkPermission(pod *podInfo) string {
	system := []string{metav1.NamespaceSystem, metav1.NamespacePublic, corev1.NamespaceNodeLease, cluster.SystemNamespace(p.in.Classes)}
	label, labelled := pod.Labels[names.LabelDefragmentation]
	switch {
	case pod.DeletionTimestamp != nil:
		return "it is being deleted"
	case pod.Spec.NodeName == "" || isFinished(pod.Pod):
		return "it is not running"
	case slices.Contains(system, pod.Namespace):
		return "it is in a system namespace"
	case p.permissions.Allow(pod.Pod):
		return ""
	case labelled:
		return fmt.Sprintf("its label %s=%s forbids it", names.LabelDefragmentation, label)
	default:
		return fmt.Sprintf("neither the pod nor its namespace has the label %s=%s", names.LabelDefragmentation, names.ValueTrue)
	}
}

// recreators are the kinds of controllers that replace an evicted pod.
var recreators = []schema.GroupKind{{Group: "apps", Kind: "ReplicaSet"}, {Group: "apps", Kind: "StatefulSet"}, {Kind: "ReplicationController"}}

// IsJob reports whether the controller of a pod is a Job of Kubernetes. Other projects have kinds of the same name.
func IsJob(owner *metav1.OwnerReference) bool {
	return kindOf(owner) == schema.GroupKind{Group: batchv1.GroupName, Kind: "Job"}
}

func kindOf(owner *metav1.OwnerReference) schema.GroupKind {
	return schema.FromAPIVersionAndKind(owner.APIVersion, owner.Kind).GroupKind()
}

// checkController says why nothing would replace a pod after its eviction, empty if something would.
func (p *Planner) checkController(pod *podInfo) string {
	owner := metav1.GetControllerOf(pod)
	if owner == nil {
		return "it has no controller that would replace it"
	}
	switch {
	case slices.Contains(recreators, kindOf(owner)):
		return ""
	case !IsJob(owner):
		return fmt.Sprintf("its controller %s %s is no ReplicaSet, StatefulSet, ReplicationController or Job", owner.Kind, owner.Name)
	}
	if pod.job = p.jobs[owner.UID]; pod.job == nil {
		return fmt.Sprintf("its Job %s could not be read", owner.Name)
	}
	if !survives(pod.job, 1) {
		return fmt.Sprintf("its Job %s would fail: the Job needs a backoffLimit above its failed pods, or a podFailurePolicy that ignores DisruptionTarget", owner.Name)
	}
	return ""
}

// survives reports whether a Job goes on after evictions of its pods.
func survives(j *batchv1.Job, evictions int32) bool {
	ignored, fails := onEviction(j.Spec.PodFailurePolicy)
	if ignored || fails {
		return ignored
	}
	failed := j.Status.Failed
	if u := j.Status.UncountedTerminatedPods; u != nil {
		failed += int32(len(u.Failed))
	}
	const backoffLimit = 6 // the default of Kubernetes
	return j.Spec.BackoffLimitPerIndex == nil && failed+evictions <= ptr.Deref(j.Spec.BackoffLimit, backoffLimit)
}

// onEviction tells what a policy does about an evicted pod: ignored means that it does not count as failed,
// fails that the Job fails. Otherwise the pod counts as failed. Rules about exit codes may come first: with
// which code the pod ends is not known.
func onEviction(policy *batchv1.PodFailurePolicy) (ignored, fails bool) {
	if policy == nil {
		return false, false
	}
	mayCount := false
	for _, rule := range policy.Rules {
		disrupted := slices.ContainsFunc(rule.OnPodConditions, func(c batchv1.PodFailurePolicyOnPodConditionsPattern) bool {
			return c.Type == corev1.DisruptionTarget && (c.Status == "" || c.Status == corev1.ConditionTrue)
		})
		switch {
		case rule.OnExitCodes == nil && !disrupted:
			continue
		case rule.Action == batchv1.PodFailurePolicyActionFailJob, rule.Action == batchv1.PodFailurePolicyActionFailIndex:
			return false, true
		case disrupted:
			return rule.Action == batchv1.PodFailurePolicyActionIgnore && !mayCount, false
		}
		mayCount = mayCount || rule.Action == batchv1.PodFailurePolicyActionCount
	}
	return false, false
}

// addFutureClaims finds the claims that the replacement of a pod would get. It returns why they are not
// known, empty if they are.
func (p *Planner) addFutureClaims(pod *podInfo) string {
	for i := range pod.Spec.ResourceClaims {
		c := &pod.Spec.ResourceClaims[i]
		if c.ResourceClaimTemplateName == nil {
			return fmt.Sprintf("its ResourceClaim %s is not created from a template, so it is not released with the pod", ptr.Deref(c.ResourceClaimName, c.Name))
		}
		claim := p.claimFromTemplate(pod.Pod, c)
		if claim == nil {
			return fmt.Sprintf("its ResourceClaimTemplate %s does not exist", *c.ResourceClaimTemplateName)
		}
		pod.claims = append(pod.claims, claim)
	}
	p.addExtended(pod)
	return ""
}

// addHeldClaims finds the claims that a pod holds. It returns why one of them would not be released with
// the pod, empty if all would.
func (p *Planner) addHeldClaims(pod *podInfo) string {
	var names []string
	for i := range pod.Spec.ResourceClaims {
		name, _, err := resourceclaim.Name(pod.Pod, &pod.Spec.ResourceClaims[i])
		if err != nil || name == nil {
			return fmt.Sprintf("its ResourceClaim for %s was not created", pod.Spec.ResourceClaims[i].Name)
		}
		names = append(names, *name)
	}
	if status := pod.Status.ExtendedResourceClaimStatus; status != nil {
		names = append(names, status.ResourceClaimName)
	} else if len(pod.extended) > 0 {
		return "a device plugin serves its extended resources"
	}
	for _, name := range names {
		c := p.claims[types.NamespacedName{Namespace: pod.Namespace, Name: name}]
		switch {
		case c == nil || c.Status.Allocation == nil:
			return fmt.Sprintf("its ResourceClaim %s is not allocated", name)
		case !metav1.IsControlledBy(c, pod) || len(c.Status.ReservedFor) != 1 || c.Status.ReservedFor[0].UID != pod.UID:
			return fmt.Sprintf("its ResourceClaim %s is not the pod's alone", name)
		}
		pod.held = append(pod.held, c)
	}
	return ""
}

// budget is a PodDisruptionBudget with its compiled selector.
type budget struct {
	*policyv1.PodDisruptionBudget
	selector labels.Selector
}

func (p *Planner) addBudget(b *policyv1.PodDisruptionBudget) {
	selector, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
	if err != nil {
		selector = labels.Everything() // it may select any pod
	}
	p.budgets[b.Namespace] = append(p.budgets[b.Namespace], budget{b, selector})
}

// addBudgets finds the PodDisruptionBudgets of a pod. It returns why they do not allow any eviction.
func (p *Planner) addBudgets(pod *podInfo) string {
	for _, b := range p.budgets[pod.Namespace] {
		if b.selector.Matches(labels.Set(pod.Labels)) {
			pod.budgets = append(pod.budgets, b.PodDisruptionBudget)
		}
	}
	if len(pod.budgets) > 1 {
		return "several PodDisruptionBudgets select it, so it cannot be evicted"
	}
	return ""
}

// exceededBudget returns a PodDisruptionBudget that does not allow the evictions, nil if all do.
func exceededBudget(moved []*podInfo) *policyv1.PodDisruptionBudget {
	evictions := map[*policyv1.PodDisruptionBudget]int32{}
	for _, pod := range moved {
		for _, b := range pod.budgets {
			evictions[b]++
			if evictions[b] > b.Status.DisruptionsAllowed || b.Status.ObservedGeneration < b.Generation {
				return b
			}
		}
	}
	return nil
}

// failingJob returns a Job that would fail because of the evictions, nil if none would.
func failingJob(moved []*podInfo) *batchv1.Job {
	evictions := map[*batchv1.Job]int32{}
	for _, pod := range moved {
		if pod.job == nil {
			continue
		}
		evictions[pod.job]++
		if !survives(pod.job, evictions[pod.job]) {
			return pod.job
		}
	}
	return nil
}
