package cluster

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/cel"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/allocation"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/lists"
	"github.com/tranche-dev/tranche/pkg/publish"
	"github.com/tranche-dev/tranche/pkg/text"
)

// Objects are what was read from the API server. Everything but Slices can be missing.
type Objects struct {
	// Slices of all drivers: a claim can ask for devices of several.
	Slices []resourceapi.ResourceSlice
	// Claims of all namespaces, unless Partial says that there are others.
	Claims  []resourceapi.ResourceClaim
	Partial bool
	// Classes is nil if they could not be read.
	Classes []resourceapi.DeviceClass
	// Rules taint devices in addition to the taints in Slices.
	Rules    []resourceapi.DeviceTaintRule
	Nodes    []corev1.Node
	GPUNodes []v1beta1.GPUNode
	// PendingPods are pods without a node, valid if PodsKnown.
	PendingPods []corev1.Pod
	PodsKnown   bool
	// Requesting has the pods with a node that request GPU memory or compute of it, nil if not all of
	// them are known.
	Requesting []corev1.Pod
	// Unread is what could not be read.
	Unread []text.Unread
	// Now is when the objects were read.
	Now time.Time
	// Compiled are selectors that were compiled for other models. It may be nil.
	Compiled *cel.Cache
}

// Cluster is the model. Equal objects give an equal model, in whatever order they are.
type Cluster struct {
	Objects
	// Pools are the GPUs, and the pools of other drivers.
	Pools []*Pool
	// Tainted are Slices with the taints of the rules.
	Tainted []resourceapi.ResourceSlice
	// DeviceClasses are Classes by name.
	DeviceClasses allocation.Classes
	// Selectors are the compiled selectors of classes and claims.
	Selectors *cel.Cache
	// lost are our devices that claims hold and that are not in any slice.
	lost []*held
}

// mostSelectors is how many compiled selectors of claims are kept, beside those of classes.
const mostSelectors = 100

// New builds the model.
func New(o Objects) *Cluster {
	c := &Cluster{
		Objects: o, Tainted: withRules(o.Slices, o.Rules),
		DeviceClasses: allocation.Classes{}, Selectors: o.Compiled,
	}
	if c.Selectors == nil {
		c.Selectors = allocation.NewCache(len(o.Classes) + mostSelectors)
	}
	for i := range o.Classes {
		c.DeviceClasses[o.Classes[i].Name] = &o.Classes[i]
	}
	for id, parts := range publish.Newest(c.Tainted) {
		c.Pools = append(c.Pools, newPools(id, parts)...)
	}
	slices.SortFunc(c.Pools, func(a, b *Pool) int {
		return cmp.Or(cmp.Compare(a.Driver, b.Driver), cmp.Compare(a.Name, b.Name), cmp.Compare(a.GPU, b.GPU))
	})
	c.hold()
	return c
}

func (c *Cluster) hold() {
	devices, gpus := map[deviceKey]*Device{}, map[deviceKey]*Pool{}
	for _, p := range c.Pools {
		if p.Driver == names.DriverName {
			gpus[deviceKey{p.Driver, p.Name, p.GPU}] = p
		}
		for _, d := range p.Devices {
			devices[deviceKey{p.Driver, p.Name, d.Name}] = d
		}
	}
	for key, h := range holdersOf(c.Claims) {
		switch d := devices[key]; {
		case d != nil:
			d.Holders = h.holders
			if d.Held() {
				d.Pool.Taken.Add(d.Consumes)
			}
		case key.driver != names.DriverName, gpu.IsMonitor(key.device): // not published during a switch
		default:
			if p := gpus[deviceKey{key.driver, key.pool, GPUOf(key.device)}]; p != nil {
				p.gone = append(p.gone, h)
			} else {
				c.lost = append(c.lost, h)
			}
		}
	}
	slices.SortFunc(c.lost, func(a, b *held) int {
		return cmp.Or(cmp.Compare(a.pool, b.pool), cmp.Compare(GPUOf(a.device), GPUOf(b.device)), cmp.Compare(a.device, b.device))
	})
}

// Node returns a node, nil if it could not be read.
func (c *Cluster) Node(name string) *corev1.Node {
	return lists.Find(c.Nodes, func(n *corev1.Node) bool { return n.Name == name })
}

// NodeNames returns the names of the nodes that publish GPUs, sorted.
func (c *Cluster) NodeNames() []string {
	var names []string
	for _, p := range c.Pools {
		if p.GPU != "" && p.onNode() {
			names = append(names, p.Node)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Progress returns how far a node is with its profile, nil if it has no GPUNode.
func (c *Cluster) Progress(node string) *Progress {
	if n := lists.Find(c.GPUNodes, func(n *v1beta1.GPUNode) bool { return n.Name == node }); n != nil {
		return new(ProgressOf(n))
	}
	return nil
}
