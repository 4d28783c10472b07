package defrag

import (
	"cmp"
	"errors"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tranche-dev/tranche/pkg/cluster"
	"github.com/tranche-dev/tranche/pkg/why/demand"
	"github.com/tranche-dev/tranche/pkg/why/fit"
)

// Input has the API objects that a plan depends on: nodes with all of their ResourceSlices and pods, and
// the ResourceClaims of the whole cluster. Nodes that are missing are not part of any plan.
type Input struct {
	cluster.Objects
	Pods       []corev1.Pod
	Templates  []resourceapi.ResourceClaimTemplate
	Budgets    []policyv1.PodDisruptionBudget
	Namespaces []corev1.Namespace
	// Jobs tell whether a Job replaces an evicted pod. Pods whose Job is not here are not moved.
	Jobs []batchv1.Job
	// Storage has the objects behind volumes. Pods whose volumes are not here are not moved.
	Storage demand.Storage
}

// Options limit a plan.
type Options struct {
	// MaxPods is the maximum number of pods that a plan moves. The default is DefaultMaxPods.
	MaxPods int
	// Timeout limits the search for one plan, and one check. The default is 30 seconds.
	Timeout time.Duration
}

// DefaultMaxPods is the default of the controller and of kubectl tranche defrag, too.
const DefaultMaxPods = 2

const defaultTimeout = 30 * time.Second

// Planner finds plans. It is not safe for concurrent use.
type Planner struct {
	in      *Input
	o       Options
	cluster *cluster.Cluster
	// model evaluates the nodes, nil before it is needed.
	model *fit.Model
	// nodes are the nodes with GPUs. nodeNames are their names in order, mostAllocated the same names,
	// starting with the nodes whose GPU memory is allocated the most.
	nodes                    map[string]*nodeInfo
	nodeNames, mostAllocated []string
	devices                  map[Device]*cluster.Device
	templates                map[types.NamespacedName]*resourceapi.ResourceClaimTemplate
	claims                   map[types.NamespacedName]*resourceapi.ResourceClaim
	pods                     map[types.NamespacedName]*corev1.Pod
	jobs                     map[types.UID]*batchv1.Job
	volumeClaims             map[types.NamespacedName]*corev1.PersistentVolumeClaim
	volumes                  map[string]*corev1.PersistentVolume
	permissions              Permissions
	// budgets are the PodDisruptionBudgets of each namespace.
	budgets map[string][]budget
	// antiAffinity are the required terms of the pods that have a node.
	antiAffinity []antiAffinityTerm
	podInfos     map[types.NamespacedName]*podInfo
	// matching caches which devices satisfy requests, by the text of the requests.
	matching map[string]map[*cluster.Device]bool
}

// errPartial: without all claims, devices may look free that are allocated.
var errPartial = errors.New("a plan needs the ResourceClaims, ResourceSlices, DeviceClasses and nodes of the whole cluster")

// New prepares a planner. It fails if the input lacks objects without which every plan could be wrong.
func New(in *Input, o Options) (*Planner, error) {
	if in.Partial || in.Slices == nil || in.Classes == nil || in.Nodes == nil {
		return nil, errPartial
	}
	o.MaxPods, o.Timeout = cmp.Or(o.MaxPods, DefaultMaxPods), cmp.Or(o.Timeout, defaultTimeout)
	p := &Planner{
		in: in, o: o, cluster: cluster.New(in.Objects), nodes: map[string]*nodeInfo{}, devices: map[Device]*cluster.Device{},
		templates: byName(in.Templates), claims: byName(in.Claims), pods: byName(in.Pods), jobs: map[types.UID]*batchv1.Job{},
		volumeClaims: byName(in.Storage.Claims), volumes: map[string]*corev1.PersistentVolume{},
		permissions: PermissionsOf(in.Namespaces), budgets: map[string][]budget{},
		podInfos: map[types.NamespacedName]*podInfo{}, matching: map[string]map[*cluster.Device]bool{},
	}
	for i := range in.Jobs {
		p.jobs[in.Jobs[i].UID] = &in.Jobs[i]
	}
	for i := range in.Storage.Volumes {
		p.volumes[in.Storage.Volumes[i].Name] = &in.Storage.Volumes[i]
	}
	for i := range in.Budgets {
		p.addBudget(&in.Budgets[i])
	}
	p.addNodes()
	poolNodes := p.poolNodes()
	for i := range in.Claims {
		p.addClaim(&in.Claims[i], poolNodes)
	}
	for i := range in.Pods {
		p.addPod(&in.Pods[i])
	}
	return p, nil
}

// named is a pointer to an API object.
type named[T any] interface {
	*T
	GetNamespace() string
	GetName() string
}

func byName[T any, P named[T]](all []T) map[types.NamespacedName]P {
	out := make(map[types.NamespacedName]P, len(all))
	for i := range all {
		out[nameOf(P(&all[i]))] = &all[i]
	}
	return out
}

func nameOf(o interface {
	GetNamespace() string
	GetName() string
}) types.NamespacedName {
	return types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}
}

// addPod subtracts what a pod requests from its node, and adds its anti-affinity. Like the scheduler,
// it ignores pods that have finished or have no node.
func (p *Planner) addPod(pod *corev1.Pod) {
	if pod.Spec.NodeName == "" || isFinished(pod) {
		return
	}
	if node := p.nodes[pod.Spec.NodeName]; node != nil {
		subtract(node.free, requests(pod))
	}
	for _, term := range requiredAntiAffinity(pod) {
		p.antiAffinity = append(p.antiAffinity, newAntiAffinityTerm(pod, &term))
	}
}

func isFinished(pod *corev1.Pod) bool {
	return slices.Contains([]corev1.PodPhase{corev1.PodSucceeded, corev1.PodFailed}, pod.Status.Phase)
}
