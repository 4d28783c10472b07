package defrag

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tranche-dev/tranche/pkg/allocation"
	"github.com/tranche-dev/tranche/pkg/cluster"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/why/demand"
)

// Input has the objects of the API server, of all namespaces and nodes.
type Input struct {
	cluster.Objects
	Pods       []corev1.Pod
	Templates  []resourceapi.ResourceClaimTemplate
	Budgets    []policyv1.PodDisruptionBudget
	Namespaces []corev1.Namespace
	// Jobs tell whether a pod of a Job is created again. Without its Job, a pod is not moved.
	Jobs []batchv1.Job
	// Storage has the objects behind volumes. Pods whose volumes are not known are not moved.
	Storage demand.Storage
}

// Options limit a plan.
type Options struct {
	// MaxPods is how many pods a plan may move. The default is 4.
	MaxPods int
	// Patience is how long one search may take. The default is 30 seconds.
	Patience time.Duration
}

const (
	defaultMaxPods  = 4
	defaultPatience = 30 * time.Second
)

// Planner finds plans. It is not safe for concurrent use.
type Planner struct {
	in        *Input
	o         Options
	cluster   *cluster.Cluster
	sites     map[string]*site
	names     []string // of the sites, in order
	fullest   []string // the same, those with the most allocated memory first
	devices   map[Device]*cluster.Device
	templates map[types.NamespacedName]*resourceapi.ResourceClaimTemplate
	claims    map[types.NamespacedName]*resourceapi.ResourceClaim
	pods      map[types.NamespacedName]*corev1.Pod
	allowed   map[string]bool // namespaces whose pods may be moved
	guests    map[types.NamespacedName]*guest
	// known is which devices could serve claims, by what these ask for.
	known map[string]map[*cluster.Device]bool
}

// site is a node with GPUs.
type site struct {
	node   *corev1.Node
	pools  []*cluster.Pool
	slices []*resourceapi.ResourceSlice
	// claims are those that hold devices of the node, or of no certain node.
	claims []*resourceapi.ResourceClaim
	// free is what pods may still request of the node.
	free corev1.ResourceList
}

// errPartial: without all claims and pods, what looks free may not be.
var errPartial = errors.New("a plan needs the ResourceClaims, ResourceSlices, DeviceClasses and nodes of the whole cluster")

// New prepares a planner.
func New(in *Input, o Options) (*Planner, error) {
	if in.Partial || in.Slices == nil || in.Classes == nil || in.Nodes == nil {
		return nil, errPartial
	}
	o.MaxPods, o.Patience = cmp.Or(o.MaxPods, defaultMaxPods), cmp.Or(o.Patience, defaultPatience)
	p := &Planner{
		in: in, o: o, cluster: cluster.New(in.Objects), sites: map[string]*site{}, devices: map[Device]*cluster.Device{}, allowed: map[string]bool{},
		templates: map[types.NamespacedName]*resourceapi.ResourceClaimTemplate{}, claims: map[types.NamespacedName]*resourceapi.ResourceClaim{},
		pods: map[types.NamespacedName]*corev1.Pod{}, guests: map[types.NamespacedName]*guest{},
		known: map[string]map[*cluster.Device]bool{},
	}
	for i := range in.Templates {
		p.templates[nameOf(&in.Templates[i])] = &in.Templates[i]
	}
	for i := range in.Claims {
		p.claims[nameOf(&in.Claims[i])] = &in.Claims[i]
	}
	for i := range in.Namespaces {
		p.allowed[in.Namespaces[i].Name] = mayMove(in.Namespaces[i].Labels)
	}
	p.addSites()
	p.addPods()
	return p, nil
}

func nameOf(o interface {
	GetNamespace() string
	GetName() string
}) types.NamespacedName {
	return types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}
}

// addSites adds the nodes with GPUs, each with what the allocator needs for it and no more: it reads all
// that it is given each time.
func (p *Planner) addSites() {
	for i := range p.in.Nodes {
		n := &p.in.Nodes[i]
		p.sites[n.Name] = &site{node: n, free: maps.Clone(n.Status.Allocatable)}
	}
	for _, pool := range p.cluster.Pools {
		if s := p.sites[pool.Node]; s != nil && pool.GPU != "" {
			s.pools = append(s.pools, pool)
			for _, d := range pool.Devices {
				p.devices[Device{pool.Name, d.Name}] = d
			}
		}
	}
	maps.DeleteFunc(p.sites, func(_ string, s *site) bool { return len(s.pools) == 0 })
	p.names = slices.Sorted(maps.Keys(p.sites))
	p.fullest = slices.Clone(p.names)
	slices.SortStableFunc(p.fullest, func(a, b string) int { return cmp.Compare(p.sites[b].use(), p.sites[a].use()) })
	for i := range p.cluster.Tainted {
		slice := &p.cluster.Tainted[i]
		if slice.Spec.NodeName == nil {
			p.each(func(s *site) { s.slices = append(s.slices, slice) })
		} else if s := p.sites[*slice.Spec.NodeName]; s != nil {
			s.slices = append(s.slices, slice)
		}
	}
	for i := range p.in.Claims {
		p.addClaim(&p.in.Claims[i])
	}
}

// use is the allocated part of the node's GPU memory.
func (s *site) use() float64 {
	var taken, total int64
	for _, pool := range s.pools {
		taken += pool.Taken[gpu.CounterMemory]
		total += pool.Total[gpu.CounterMemory]
	}
	return float64(taken) / float64(max(1, total))
}

func (p *Planner) each(do func(*site)) {
	for _, name := range p.names {
		do(p.sites[name])
	}
}

// addClaim adds a claim to the nodes whose devices it holds.
func (p *Planner) addClaim(c *resourceapi.ResourceClaim) {
	if c.Status.Allocation == nil {
		return
	}
	on := map[string]bool{}
	for _, r := range c.Status.Allocation.Devices.Results {
		if r.Driver != gpu.DriverName {
			p.each(func(s *site) { s.claims = append(s.claims, c) })
			return
		}
		on[gpu.NodeOfPool(r.Pool)] = true
	}
	for node := range on {
		if s := p.sites[node]; s != nil {
			s.claims = append(s.claims, c)
		}
	}
}

// addPods adds the pods, and takes what they request from their nodes.
func (p *Planner) addPods() {
	for i := range p.in.Pods {
		pod := &p.in.Pods[i]
		p.pods[nameOf(pod)] = pod
		if s := p.sites[pod.Spec.NodeName]; s != nil && !finished(pod) {
			subtract(s.free, requests(pod))
		}
	}
}

func finished(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// held is what claims hold on a node without those of some, and with more.
func (s *site) held(without map[*resourceapi.ResourceClaim]bool, more []resourceapi.DeviceRequestAllocationResult) allocated {
	state := allocation.Nothing()
	for _, c := range s.claims {
		if !without[c] {
			allocation.Hold(state, c.Status.Allocation.Devices.Results)
		}
	}
	allocation.Hold(state, more)
	return state
}
