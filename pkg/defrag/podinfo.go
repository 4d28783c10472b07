package defrag

import (
	"fmt"
	"slices"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	schedulinghelper "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/api/v1alpha1"
	"github.com/tranche-dev/tranche/pkg/cluster"
	"github.com/tranche-dev/tranche/pkg/why/demand"
)

// guest is a pod with what it needs of a node.
type guest struct {
	pod *corev1.Pod
	// claims are those that it would get if it were created again; of a waiting pod, those that it
	// has or will have. held are allocated.
	claims, held []*resourceapi.ResourceClaim
	// extended are the resources that stand for devices.
	extended map[corev1.ResourceName]string
	requests corev1.ResourceList
	// reach is from where its volumes can be reached.
	reach   []*nodeaffinity.NodeSelector
	budgets []*policyv1.PodDisruptionBudget
	// fixed is why it may not be moved, empty if it may.
	fixed string
}

func (g *guest) String() string { return nameOf(g.pod).String() }

// guest describes a pod that may have to move.
func (p *Planner) guest(pod *corev1.Pod) *guest {
	name := nameOf(pod)
	if g := p.guests[name]; g != nil {
		return g
	}
	g := &guest{pod: pod, requests: requests(pod)}
	p.guests[name] = g
	for _, check := range []func(*guest) string{p.permission, p.recreated, p.again, p.holds, p.addReach, elsewhere, p.avoided, p.addBudgets} {
		if g.fixed = check(g); g.fixed != "" {
			break
		}
	}
	return g
}

// mayMove tells whether labels allow evictions.
func mayMove(of map[string]string) bool {
	return of[v1alpha1.LabelDefragmentation] == v1alpha1.DefragmentationAllowed
}

func (p *Planner) permission(g *guest) string {
	system := []string{metav1.NamespaceSystem, metav1.NamespacePublic, corev1.NamespaceNodeLease, cluster.SystemNamespace(p.in.Classes)}
	_, own := g.pod.Labels[v1alpha1.LabelDefragmentation]
	switch {
	case g.pod.DeletionTimestamp != nil:
		return "it is being deleted"
	case g.pod.Spec.NodeName == "" || finished(g.pod):
		return "it does not run"
	case slices.Contains(system, g.pod.Namespace):
		return "it belongs to the system"
	case own && !mayMove(g.pod.Labels), !own && !p.allowed[g.pod.Namespace]:
		return fmt.Sprintf("neither it nor its namespace has the label %s=%s", v1alpha1.LabelDefragmentation, v1alpha1.DefragmentationAllowed)
	}
	return ""
}

// recreated says why a pod would not be created again after its eviction.
func (p *Planner) recreated(g *guest) string {
	owner := metav1.GetControllerOf(g.pod)
	if owner == nil {
		return "nothing would create it again"
	}
	switch owner.Kind {
	case "ReplicaSet", "StatefulSet", "ReplicationController":
		return ""
	case "Job":
		i := slices.IndexFunc(p.in.Jobs, func(j batchv1.Job) bool { return j.UID == owner.UID })
		if i >= 0 && retries(&p.in.Jobs[i]) {
			return ""
		}
		return fmt.Sprintf("its Job %s might fail: it needs a backoffLimit above its failed pods, or a podFailurePolicy that ignores DisruptionTarget", owner.Name)
	}
	return fmt.Sprintf("it belongs to the %s %s", owner.Kind, owner.Name)
}

// retries tells whether a Job goes on after an eviction.
func retries(j *batchv1.Job) bool {
	if policy := j.Spec.PodFailurePolicy; policy != nil {
		for _, rule := range policy.Rules {
			disrupted := slices.ContainsFunc(rule.OnPodConditions, func(c batchv1.PodFailurePolicyOnPodConditionsPattern) bool { return c.Type == corev1.DisruptionTarget })
			if disrupted || rule.OnExitCodes != nil && rule.Action == batchv1.PodFailurePolicyActionFailJob {
				return disrupted && rule.Action == batchv1.PodFailurePolicyActionIgnore
			}
		}
	}
	const backoffLimit = 6 // the default of Kubernetes
	return j.Spec.BackoffLimitPerIndex == nil && j.Status.Failed < ptr.Deref(j.Spec.BackoffLimit, backoffLimit)
}

// again finds the claims that a pod would get if it were created again.
func (p *Planner) again(g *guest) string {
	g.claims = nil
	for i := range g.pod.Spec.ResourceClaims {
		c := &g.pod.Spec.ResourceClaims[i]
		if c.ResourceClaimTemplateName == nil {
			return fmt.Sprintf("its claim %s is not made from a template, so it is not released with the pod", c.Name)
		}
		claim := p.fromTemplate(g.pod, c)
		if claim == nil {
			return fmt.Sprintf("the ResourceClaimTemplate %s does not exist", *c.ResourceClaimTemplateName)
		}
		g.claims = append(g.claims, claim)
	}
	p.addExtended(g)
	return ""
}

func (p *Planner) fromTemplate(pod *corev1.Pod, c *corev1.PodResourceClaim) *resourceapi.ResourceClaim {
	t := p.templates[types.NamespacedName{Namespace: pod.Namespace, Name: *c.ResourceClaimTemplateName}]
	if t == nil {
		return nil
	}
	return &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name + "-" + c.Name, UID: pod.UID + "/" + types.UID(c.Name)},
		Spec:       *t.Spec.Spec.DeepCopy(),
	}
}

// addExtended adds the claim for extended resources, which the scheduler makes.
func (p *Planner) addExtended(g *guest) {
	if !slices.ContainsFunc(resourceNames(g.requests), func(name string) bool { return strings.Contains(name, "/") }) {
		return
	}
	bare := g.pod.DeepCopy()
	bare.Spec.ResourceClaims, bare.Spec.NodeName, bare.Status = nil, "", corev1.PodStatus{}
	d := demand.Of(demand.Input{Pod: bare, Classes: p.in.Classes})
	for _, c := range d.Unallocated {
		c.Name, c.UID = g.pod.Name+"-extended-resources", g.pod.UID+"/extended-resources"
		g.claims = append(g.claims, c)
	}
	g.extended = d.Extended
}

func resourceNames(l corev1.ResourceList) (out []string) {
	for name := range l {
		out = append(out, string(name))
	}
	return out
}

// holds finds the claims that a pod holds, which must be its own.
func (p *Planner) holds(g *guest) string {
	var names []string
	for i := range g.pod.Spec.ResourceClaims {
		name, _, err := resourceclaim.Name(g.pod, &g.pod.Spec.ResourceClaims[i])
		if err != nil || name == nil {
			return fmt.Sprintf("its claim %s was not created", g.pod.Spec.ResourceClaims[i].Name)
		}
		names = append(names, *name)
	}
	if status := g.pod.Status.ExtendedResourceClaimStatus; status != nil {
		names = append(names, status.ResourceClaimName)
	} else if len(g.extended) > 0 {
		return "it holds devices of a device plugin"
	}
	for _, name := range names {
		c := p.claims[types.NamespacedName{Namespace: g.pod.Namespace, Name: name}]
		switch {
		case c == nil || c.Status.Allocation == nil:
			return fmt.Sprintf("its claim %s is not allocated", name)
		case !metav1.IsControlledBy(c, g.pod) || len(c.Status.ReservedFor) != 1 || c.Status.ReservedFor[0].UID != g.pod.UID:
			return fmt.Sprintf("its claim %s is not only its own", name)
		}
		g.held = append(g.held, c)
	}
	return ""
}

// addReach finds from where the volumes of a pod can be reached.
func (p *Planner) addReach(g *guest) string {
	for _, v := range g.pod.Spec.Volumes {
		if v.HostPath != nil {
			return fmt.Sprintf("its volume %s is a folder of its node", v.Name)
		}
	}
	for _, v := range demand.Volumes(g.pod, p.in.Storage) {
		switch {
		case v.State != demand.VolumeReady || v.PV != "" && !v.NodesKnown:
			return fmt.Sprintf("its volume %s is not ready, or it is not known from where it can be reached", v.Name)
		case v.Nodes != nil:
			selector, err := nodeaffinity.NewNodeSelector(v.Nodes)
			if err != nil {
				return fmt.Sprintf("the nodes of its volume %s cannot be read: %v", v.Name, err)
			}
			g.reach = append(g.reach, selector)
		}
	}
	return ""
}

// elsewhere names what decides where a pod can run and is not compared with nodes here.
func elsewhere(g *guest) string {
	a := g.pod.Spec.Affinity
	spread := func(c corev1.TopologySpreadConstraint) bool { return c.WhenUnsatisfiable == corev1.DoNotSchedule }
	ports := func(c corev1.Container) bool {
		return slices.ContainsFunc(c.Ports, func(p corev1.ContainerPort) bool { return p.HostPort > 0 })
	}
	switch {
	case a != nil && a.PodAffinity != nil && len(a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution) > 0:
		return "it must run near other pods (podAffinity)"
	case len(antiAffinity(g.pod)) > 0:
		return "it must run away from other pods (podAntiAffinity)"
	case slices.ContainsFunc(g.pod.Spec.TopologySpreadConstraints, spread):
		return "it must be spread (topologySpreadConstraints)"
	case slices.ContainsFunc(demand.Containers(g.pod), ports):
		return "it uses ports of the host"
	}
	return ""
}

func antiAffinity(pod *corev1.Pod) []corev1.PodAffinityTerm {
	if a := pod.Spec.Affinity; a != nil && a.PodAntiAffinity != nil {
		return a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	}
	return nil
}

// avoided names a pod that keeps this one away from where it runs.
func (p *Planner) avoided(g *guest) string {
	for i := range p.in.Pods {
		other := &p.in.Pods[i]
		for _, term := range antiAffinity(other) {
			where := other.Namespace == g.pod.Namespace && len(term.Namespaces) == 0 || slices.Contains(term.Namespaces, g.pod.Namespace)
			selector, err := metav1.LabelSelectorAsSelector(term.LabelSelector)
			if (where || term.NamespaceSelector != nil) && (err != nil || selector.Matches(labels.Set(g.pod.Labels))) {
				return fmt.Sprintf("%s keeps it away (podAntiAffinity)", nameOf(other))
			}
		}
	}
	return ""
}

// addBudgets finds the PodDisruptionBudgets of a pod. The Eviction API refuses pods with several.
func (p *Planner) addBudgets(g *guest) string {
	for i := range p.in.Budgets {
		b := &p.in.Budgets[i]
		selector, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
		if b.Namespace == g.pod.Namespace && (err != nil || selector.Matches(labels.Set(g.pod.Labels))) {
			g.budgets = append(g.budgets, b)
		}
	}
	if len(g.budgets) > 1 {
		return "it has several PodDisruptionBudgets"
	}
	return ""
}

// exceeded is a PodDisruptionBudget that does not allow so many evictions, nil if all do.
func exceeded(moved []*guest) *policyv1.PodDisruptionBudget {
	count := map[*policyv1.PodDisruptionBudget]int32{}
	for _, g := range moved {
		for _, b := range g.budgets {
			count[b]++
			if count[b] > b.Status.DisruptionsAllowed || b.Status.ObservedGeneration < b.Generation {
				return b
			}
		}
	}
	return nil
}

// holder is the pod behind a holder of a device, nil if there is not exactly one. fixed is why it may not
// be moved for the waiting pod.
func (p *Planner) holder(h cluster.Holder, waiting *corev1.Pod) (g *guest, fixed string) {
	claim := p.claims[types.NamespacedName{Namespace: h.Namespace, Name: h.Claim}]
	if claim == nil || len(claim.Status.ReservedFor) != 1 || claim.Status.ReservedFor[0].Resource != "pods" {
		return nil, fmt.Sprintf("the claim %s/%s is not used by one pod alone", h.Namespace, h.Claim)
	}
	pod := p.pods[types.NamespacedName{Namespace: h.Namespace, Name: claim.Status.ReservedFor[0].Name}]
	if pod == nil {
		return nil, fmt.Sprintf("the pod of the claim %s/%s does not exist", h.Namespace, h.Claim)
	}
	g = p.guest(pod)
	mine, its := schedulinghelper.PodPriority(waiting), schedulinghelper.PodPriority(pod)
	switch {
	case g.fixed != "":
		fixed = fmt.Sprintf("%s may not be moved: %s", g, g.fixed)
	case its > mine:
		fixed = fmt.Sprintf("%s may not be moved: its priority %d is above that of the waiting pod, %d", g, its, mine)
	}
	return g, fixed
}
