package why

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/pkg/allocation"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/picture"
)

// cluster is what the devices of all nodes are, and who holds them.
type cluster struct {
	in      *Input
	slices  []*resourceapi.ResourceSlice // with the taints of the rules
	bare    []*resourceapi.ResourceSlice // without any taints, when needed
	pools   []*pool
	classes allocation.Classes
	cel     *cel.Cache
	held    structured.AllocatedState
	holders map[structured.DeviceID][]resourceapi.ResourceClaim
}

type poolKey struct{ driver, name string }

// pool is the newest generation of a pool; of a pool of ours it is one GPU.
type pool struct {
	poolKey
	// card is empty for pools of other drivers.
	card       string
	generation int64
	parts      []*resourceapi.ResourceSlice
	incomplete bool
	total      counters
	taken      counters
	devices    []*device
}

type counters map[string]int64

type device struct {
	*resourceapi.Device
	pool     *pool
	slice    *resourceapi.ResourceSlice
	id       structured.DeviceID
	consumes counters
	label    string
}

func newCluster(in *Input) *cluster {
	c := &cluster{
		in:      in,
		classes: allocation.Classes{},
		cel:     allocation.NewCache(100),
		holders: map[structured.DeviceID][]resourceapi.ResourceClaim{},
		held:    allocation.Nothing(),
	}
	for i := range in.Classes {
		c.classes[in.Classes[i].Name] = &in.Classes[i]
	}
	patched := picture.WithRules(in.Slices, in.Rules)
	for i := range patched {
		c.slices = append(c.slices, &patched[i])
	}
	c.gather()
	for i := range in.Claims {
		c.hold(in.Claims[i])
	}
	for _, p := range c.pools {
		for _, d := range p.devices {
			if len(c.holders[d.id]) > 0 {
				p.taken.add(d.consumes)
			}
		}
	}
	return c
}

// gather puts the slices together by pool. Older generations count for nothing,
// as in the scheduler.
func (c *cluster) gather() {
	byKey := map[poolKey]*pool{}
	for _, s := range c.slices {
		key := poolKey{s.Spec.Driver, s.Spec.Pool.Name}
		p := byKey[key]
		if p == nil || s.Spec.Pool.Generation > p.generation {
			p = &pool{poolKey: key, generation: s.Spec.Pool.Generation}
			byKey[key] = p
		}
		if s.Spec.Pool.Generation == p.generation {
			p.parts = append(p.parts, s)
		}
	}
	for _, p := range byKey {
		slices.SortFunc(p.parts, func(a, b *resourceapi.ResourceSlice) int { return cmp.Compare(a.Name, b.Name) })
		p.incomplete = int64(len(p.parts)) < p.parts[0].Spec.Pool.ResourceSliceCount
		c.pools = append(c.pools, p.split()...)
	}
	slices.SortFunc(c.pools, func(a, b *pool) int {
		return cmp.Or(cmp.Compare(a.driver, b.driver), cmp.Compare(a.name, b.name), cmp.Compare(a.card, b.card))
	})
}

// split divides a pool of ours into its GPUs, and leaves other drivers' as they are.
func (p *pool) split() []*pool {
	cards := map[string]*pool{}
	of := func(card string) *pool {
		if p.driver != gpu.DriverName {
			card = ""
		}
		if cards[card] == nil {
			one := *p
			one.card, one.total, one.taken = card, counters{}, counters{}
			cards[card] = &one
		}
		return cards[card]
	}
	for _, s := range p.parts {
		for _, set := range s.Spec.SharedCounters {
			one := of(set.Name)
			for name, counter := range set.Counters {
				one.total[set.Name+"/"+name] += counter.Value.Value()
			}
		}
		for i := range s.Spec.Devices {
			of(picture.CardOf(s.Spec.Devices[i].Name)).add(s, i)
		}
	}
	return slices.Collect(maps.Values(cards))
}

// add adds a device of a slice.
func (p *pool) add(s *resourceapi.ResourceSlice, i int) {
	d := &device{
		Device: &s.Spec.Devices[i], pool: p, slice: s, consumes: counters{},
		id:    structured.MakeDeviceID(p.driver, p.name, s.Spec.Devices[i].Name),
		label: picture.Label(s.Spec.Devices[i]),
	}
	for _, set := range d.ConsumesCounters {
		for name, counter := range set.Counters {
			d.consumes[set.CounterSet+"/"+name] += counter.Value.Value()
		}
	}
	p.devices = append(p.devices, d)
}

// hold counts what a claim has, as the scheduler does it.
func (c *cluster) hold(claim resourceapi.ResourceClaim) {
	if claim.Status.Allocation == nil {
		return
	}
	for _, id := range allocation.Hold(c.held, claim.Status.Allocation.Devices.Results) {
		c.holders[id] = append(c.holders[id], claim)
	}
}

func (c counters) add(more counters) {
	for name, n := range more {
		c[name] += n
	}
}

// short names the counters of which too little is left.
func (p *pool) short(d *device, taken counters) []string {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(d.consumes)) {
		if n := d.consumes[name]; n > 0 && taken[name]+n > p.total[name] {
			names = append(names, name)
		}
	}
	return names
}

// inTheWay lists the claims that keep a device from being given out.
func (c *cluster) inTheWay(d *device) []resourceapi.ResourceClaim {
	all := slices.Clone(c.holders[d.id])
	lacking := d.pool.short(d, d.pool.taken)
	for _, other := range d.pool.devices {
		if other == d || len(c.holders[other.id]) == 0 {
			continue
		}
		if slices.ContainsFunc(lacking, func(name string) bool { return other.consumes[name] > 0 }) {
			all = append(all, c.holders[other.id]...)
		}
	}
	return all
}

// nodes lists the nodes that publish cards of ours, with what is known of them.
func (c *cluster) nodes() []*corev1.Node {
	known := map[string]*corev1.Node{}
	for i := range c.in.Nodes {
		known[c.in.Nodes[i].Name] = &c.in.Nodes[i]
	}
	seen := map[string]*corev1.Node{}
	for _, p := range c.pools {
		for _, s := range p.parts {
			if name := ptr.Deref(s.Spec.NodeName, ""); p.driver == gpu.DriverName && name != "" && seen[name] == nil {
				seen[name] = known[name]
				if seen[name] == nil {
					seen[name] = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
				}
			}
		}
	}
	var out []*corev1.Node
	for _, name := range slices.Sorted(maps.Keys(seen)) {
		out = append(out, seen[name])
	}
	return out
}

// knownNode tells whether the node itself could be read.
func (c *cluster) knownNode(name string) bool {
	return slices.ContainsFunc(c.in.Nodes, func(n corev1.Node) bool { return n.Name == name })
}

// on tells whether a device can be used on a node.
func (d *device) on(node *corev1.Node) bool {
	spec := d.slice.Spec
	name, all, selector := ptr.Deref(spec.NodeName, ""), ptr.Deref(spec.AllNodes, false), spec.NodeSelector
	if ptr.Deref(spec.PerDeviceNodeSelection, false) {
		name, all, selector = ptr.Deref(d.NodeName, ""), ptr.Deref(d.AllNodes, false), d.NodeSelector
	}
	matches, err := structured.NodeMatches(allocation.Features, node, name, all, selector)
	return err == nil && matches
}

// selectorError is about a selector that cannot be evaluated: to correct it is up to the person
// who wrote the claim or the class.
type selectorError struct{ error }

func (e *selectorError) Unwrap() error { return e.error }

// matches tells whether the selectors of a class and a request choose a device.
func (c *cluster) matches(ctx context.Context, d *device, selectors []resourceapi.DeviceSelector) (bool, error) {
	for _, s := range selectors {
		if s.CEL == nil {
			continue
		}
		compiled := c.cel.GetOrCompile(s.CEL.Expression)
		if compiled.Error != nil {
			return false, &selectorError{fmt.Errorf("the selector %q is wrong: %w", s.CEL.Expression, compiled.Error)}
		}
		ok, _, err := compiled.DeviceMatches(ctx, cel.Device{
			Driver: d.pool.driver, AllowMultipleAllocations: d.AllowMultipleAllocations,
			Attributes: d.Attributes, Capacity: d.Capacity,
		})
		if err != nil {
			return false, &selectorError{fmt.Errorf("the selector %q fails on device %s, and with it every attempt to schedule the pod: %w",
				s.CEL.Expression, d.Name, err)}
		}
		if !ok {
			return false, nil
		}
	}
	return true, nil
}
