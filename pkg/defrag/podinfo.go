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
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/component-helpers/storage/ephemeral"
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/pkg/why/demand"
)

// podInfo is a pod with what it needs of a node.
type podInfo struct {
	*corev1.Pod
	// claims are the claims to allocate: those that a waiting pod has or will have, and those that the
	// replacement of a running pod will have. held are the claims that a running pod has now.
	claims, held []*resourceapi.ResourceClaim
	// extended has the extended resources that devices satisfy, and the DeviceClass of each.
	extended map[corev1.ResourceName]string
	requests corev1.ResourceList
	// volumeNodes select the nodes from which the pod's volumes are accessible.
	volumeNodes []*nodeaffinity.NodeSelector
	budgets     []*policyv1.PodDisruptionBudget
	// job is the Job that controls the pod, nil if no Job does.
	job *batchv1.Job
	// notMovable is why the pod may not be moved, empty if it may.
	notMovable string
}

func newPodInfo(pod *corev1.Pod) *podInfo { return &podInfo{Pod: pod, requests: requests(pod)} }

func (pod *podInfo) String() string { return nameOf(pod).String() }

// claimFromTemplate returns the claim that a pod would get from a template, nil if the template does
// not exist.
func (p *Planner) claimFromTemplate(pod *corev1.Pod, c *corev1.PodResourceClaim) *resourceapi.ResourceClaim {
	t := p.templates[types.NamespacedName{Namespace: pod.Namespace, Name: *c.ResourceClaimTemplateName}]
	if t == nil {
		return nil
	}
	return &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name + "-" + c.Name, UID: pod.UID + "/" + types.UID(c.Name)},
		Spec:       *t.Spec.Spec.DeepCopy(),
	}
}

// addExtended adds the claim that the scheduler would create for the extended resources of a pod.
func (p *Planner) addExtended(pod *podInfo) {
	if !slices.ContainsFunc(resourceNames(pod.requests), func(name string) bool { return strings.Contains(name, "/") }) {
		return
	}
	bare := pod.DeepCopy()
	bare.Spec.ResourceClaims, bare.Spec.NodeName, bare.Status = nil, "", corev1.PodStatus{}
	d := demand.Of(demand.Input{Pod: bare, Classes: p.in.Classes})
	for _, c := range d.Unallocated {
		c.Name, c.UID = pod.Name+"-extended-resources", pod.UID+"/extended-resources"
		pod.claims = append(pod.claims, c)
	}
	pod.extended = d.Extended
}

func resourceNames(l corev1.ResourceList) (out []string) {
	for name := range l {
		out = append(out, string(name))
	}
	return out
}

// addVolumes finds the nodes from which the volumes of a pod are accessible. It returns why that is not
// known, empty if it is.
func (p *Planner) addVolumes(pod *podInfo) string {
	for _, v := range pod.Spec.Volumes {
		if v.HostPath != nil {
			return fmt.Sprintf("its volume %s is a hostPath", v.Name)
		}
	}
	for _, v := range demand.Volumes(pod.Pod, p.storageOf(pod.Pod)) {
		switch {
		case v.State != demand.VolumeReady || v.PV != "" && !v.NodesKnown:
			return fmt.Sprintf("its volume %s is not ready, or the nodes that can access it are not known", v.Name)
		case v.Nodes != nil:
			selector, err := nodeaffinity.NewNodeSelector(v.Nodes)
			if err != nil {
				return fmt.Sprintf("the node affinity of its volume %s is invalid: %v", v.Name, err)
			}
			pod.volumeNodes = append(pod.volumeNodes, selector)
		}
	}
	return ""
}

// storageOf has the objects behind the volumes of one pod: a cluster has very many others.
func (p *Planner) storageOf(pod *corev1.Pod) demand.Storage {
	s := demand.Storage{Classes: p.in.Storage.Classes}
	if p.in.Storage.Claims == nil {
		return s
	}
	s.Claims = []corev1.PersistentVolumeClaim{}
	for i := range pod.Spec.Volumes {
		v, name := &pod.Spec.Volumes[i], ""
		if v.PersistentVolumeClaim != nil {
			name = v.PersistentVolumeClaim.ClaimName
		} else if v.Ephemeral != nil {
			name = ephemeral.VolumeClaimName(pod, v)
		}
		c := p.volumeClaims[types.NamespacedName{Namespace: pod.Namespace, Name: name}]
		if c == nil {
			continue
		}
		s.Claims = append(s.Claims, *c)
		if volume := p.volumes[c.Spec.VolumeName]; volume != nil {
			s.Volumes = append(s.Volumes, *volume)
		}
	}
	return s
}

// unsupportedConstraint returns what decides on which nodes a pod can run and is not compared with nodes
// here, empty if there is nothing.
func unsupportedConstraint(pod *podInfo) string {
	a := pod.Spec.Affinity
	mustSpread := func(c corev1.TopologySpreadConstraint) bool { return c.WhenUnsatisfiable == corev1.DoNotSchedule }
	usesHostPort := func(c corev1.Container) bool {
		return slices.ContainsFunc(c.Ports, func(p corev1.ContainerPort) bool { return p.HostPort > 0 })
	}
	switch {
	case pod.Spec.SchedulingGroup != nil:
		return fmt.Sprintf("it is scheduled together with the other pods of PodGroup %s", ptr.Deref(pod.Spec.SchedulingGroup.PodGroupName, ""))
	case a != nil && a.PodAffinity != nil && len(a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution) > 0:
		return "it has required podAffinity"
	case len(requiredAntiAffinity(pod.Pod)) > 0:
		return "it has required podAntiAffinity"
	case slices.ContainsFunc(pod.Spec.TopologySpreadConstraints, mustSpread):
		return "it has topologySpreadConstraints with DoNotSchedule"
	case slices.ContainsFunc(demand.Containers(pod.Pod), usesHostPort):
		return "it uses host ports"
	}
	return ""
}

// KeepsPodsAway reports whether a pod has required anti-affinity, which can keep other pods off many nodes.
func KeepsPodsAway(pod *corev1.Pod) bool {
	return pod.Spec.NodeName != "" && !isFinished(pod) && len(requiredAntiAffinity(pod)) > 0
}

func requiredAntiAffinity(pod *corev1.Pod) []corev1.PodAffinityTerm {
	if a := pod.Spec.Affinity; a != nil && a.PodAntiAffinity != nil {
		return a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	}
	return nil
}

// antiAffinityTerm keeps pods away from where another pod runs.
type antiAffinityTerm struct {
	of types.NamespacedName
	// namespaces are those of the pods that it keeps away, nil if it selects namespaces by labels.
	namespaces []string
	selector   labels.Selector
}

func newAntiAffinityTerm(pod *corev1.Pod, term *corev1.PodAffinityTerm) antiAffinityTerm {
	out := antiAffinityTerm{of: nameOf(pod)}
	if term.NamespaceSelector == nil {
		out.namespaces = term.Namespaces
		if len(out.namespaces) == 0 {
			out.namespaces = []string{pod.Namespace}
		}
	}
	var err error
	if out.selector, err = metav1.LabelSelectorAsSelector(term.LabelSelector); err != nil {
		out.selector = labels.Everything()
	}
	return out
}

// keptAway names a pod whose anti-affinity may keep this one away, empty if there is none. Which
// nodes are meant is not compared.
func (p *Planner) keptAway(pod *podInfo) string {
	for i := range p.antiAffinity {
		t := &p.antiAffinity[i]
		if (t.namespaces == nil || slices.Contains(t.namespaces, pod.Namespace)) && t.selector.Matches(labels.Set(pod.Labels)) {
			return fmt.Sprintf("the podAntiAffinity of pod %s may keep it away", t.of)
		}
	}
	return ""
}
