package defrag

import (
	"cmp"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"
	schedulinghelper "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/allocation"
	"github.com/tranche-dev/tranche/pkg/cluster"
)

// nodeInfo is a node with GPUs, with what the allocator needs for it and no more: the allocator reads
// all that it gets in each call.
type nodeInfo struct {
	node   *corev1.Node
	pools  []*cluster.Pool
	slices []*resourceapi.ResourceSlice
	// claims are those that hold devices of the node, or devices that all nodes can use.
	claims []*resourceapi.ResourceClaim
	// free is the allocatable part of the node that no pod requests.
	free corev1.ResourceList
}

func (p *Planner) addNodes() {
	for i := range p.in.Nodes {
		n := &p.in.Nodes[i]
		p.nodes[n.Name] = &nodeInfo{node: n, free: maps.Clone(n.Status.Allocatable)}
	}
	for _, pool := range p.cluster.Pools {
		if node := p.nodes[pool.Node]; node != nil && pool.GPU != "" {
			node.pools = append(node.pools, pool)
			for _, d := range pool.Devices {
				p.devices[Device{pool.Name, d.Name}] = d
			}
		}
	}
	maps.DeleteFunc(p.nodes, func(_ string, n *nodeInfo) bool { return len(n.pools) == 0 })
	p.nodeNames = slices.Sorted(maps.Keys(p.nodes))
	p.mostAllocated = slices.Clone(p.nodeNames)
	slices.SortStableFunc(p.mostAllocated, func(a, b string) int {
		return cmp.Compare(p.nodes[b].allocatedMemory(), p.nodes[a].allocatedMemory())
	})
	for i := range p.cluster.Tainted {
		slice := &p.cluster.Tainted[i]
		if slice.Spec.NodeName == nil {
			p.forEachNode(func(n *nodeInfo) { n.slices = append(n.slices, slice) })
		} else if n := p.nodes[*slice.Spec.NodeName]; n != nil {
			n.slices = append(n.slices, slice)
		}
	}
}

// allocatedMemory returns the allocated part of the node's GPU memory, from 0 to 1.
func (n *nodeInfo) allocatedMemory() float64 {
	var taken, total int64
	for _, pool := range n.pools {
		taken += pool.Taken[names.CounterMemory]
		total += pool.Total[names.CounterMemory]
	}
	return float64(taken) / float64(max(1, total))
}

func (p *Planner) forEachNode(do func(*nodeInfo)) {
	for _, name := range p.nodeNames {
		do(p.nodes[name])
	}
}

// poolKey identifies a pool of any driver.
type poolKey struct{ driver, name string }

// poolNodes returns the nodes of the published pools, empty for pools that do not belong to one node.
func (p *Planner) poolNodes() map[poolKey]string {
	out := map[poolKey]string{}
	for _, pool := range p.cluster.Pools {
		out[poolKey{pool.Driver, pool.Name}] = pool.Node
	}
	return out
}

// addClaim adds a claim to the nodes whose devices it holds. Devices that are not published do not count.
func (p *Planner) addClaim(c *resourceapi.ResourceClaim, poolNodes map[poolKey]string) {
	if c.Status.Allocation == nil {
		return
	}
	nodes := map[string]bool{}
	for _, r := range c.Status.Allocation.Devices.Results {
		node, published := poolNodes[poolKey{r.Driver, r.Pool}]
		switch {
		case !published:
			continue
		case node == "":
			p.forEachNode(func(n *nodeInfo) { n.claims = append(n.claims, c) })
			return
		}
		nodes[node] = true
	}
	for node := range nodes {
		if n := p.nodes[node]; n != nil {
			n.claims = append(n.claims, c)
		}
	}
}

// allocated returns what claims hold on the node, without those that are released, and with more results.
func (n *nodeInfo) allocated(released map[*resourceapi.ResourceClaim]bool, more results) allocatedState {
	state := allocation.Nothing()
	for _, c := range n.claims {
		if !released[c] {
			allocation.Hold(state, c.Status.Allocation.Devices.Results)
		}
	}
	allocation.Hold(state, more)
	return state
}

// admits reports whether the node can run a pod, apart from the resources and devices that the pod requests.
func (n *nodeInfo) admits(pod *podInfo) bool {
	if n.node.Spec.Unschedulable {
		return false
	}
	if ok, err := nodeaffinity.GetRequiredNodeAffinity(pod.Pod).Match(n.node); err != nil || !ok {
		return false
	}
	keepsAway := func(t *corev1.Taint) bool { return t.Effect != corev1.TaintEffectPreferNoSchedule }
	if _, found := schedulinghelper.FindMatchingUntoleratedTaint(klog.Background(), n.node.Spec.Taints, pod.Spec.Tolerations, keepsAway, true); found {
		return false
	}
	return !slices.ContainsFunc(pod.volumeNodes, func(s *nodeaffinity.NodeSelector) bool { return !s.Match(n.node) })
}

// requests returns what a pod requests of its node, as the scheduler of Kubernetes 1.37 computes it. It
// includes one of the pods that the node can run.
func requests(pod *corev1.Pod) corev1.ResourceList {
	out := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{UseStatusResources: true, InPlacePodLevelResourcesVerticalScalingEnabled: true})
	out[corev1.ResourcePods] = *resource.NewQuantity(1, resource.DecimalSI)
	return out
}

func subtract(from, amounts corev1.ResourceList) {
	for name, n := range amounts {
		if left, ok := from[name]; ok {
			left.Sub(n)
			from[name] = left
		}
	}
}

func add(to, amounts corev1.ResourceList) {
	for name, n := range amounts {
		if left, ok := to[name]; ok {
			left.Add(n)
			to[name] = left
		}
	}
}

// enough reports whether a node has what a pod requests. Extended resources that devices satisfy are not
// the node's.
func enough(free corev1.ResourceList, pod *podInfo) bool {
	for name, n := range pod.requests {
		_, isDevice := pod.extended[name]
		if left := free[name]; !isDevice && !n.IsZero() && left.Cmp(n) < 0 {
			return false
		}
	}
	return true
}
