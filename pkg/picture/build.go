package picture

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/tranche-dev/tranche/api/v1alpha1"
	"github.com/tranche-dev/tranche/pkg/gpu"
)

// Input is what the picture is made of. All but Slices may be missing.
type Input struct {
	Slices  []resourceapi.ResourceSlice
	Claims  []resourceapi.ResourceClaim
	Classes []resourceapi.DeviceClass
	// Rules taint devices beside what the slices say.
	Rules []resourceapi.DeviceTaintRule
	// Nodes adds the state of the nodes.
	Nodes []corev1.Node
	// GPUNodes add profiles and switches.
	GPUNodes []v1alpha1.GPUNode
	// Now is when all this was read, for how long switches last.
	Now time.Time
	// Pods without a node, and whether they could be read.
	PendingPods []corev1.Pod
	PodsKnown   bool
	// Partial says that Claims is not all there are.
	Partial bool
	Notes   []string

	// OnlyNodes and Namespace limit what is shown. Holders outside the
	// namespace stay in the picture without a name: their pieces are not free.
	OnlyNodes []string
	Namespace string
}

// Build makes the model of a cluster. Equal objects give an equal model, in
// whatever order they come.
func Build(in Input) *Model {
	m := &Model{Partial: in.Partial, Notes: in.Notes, only: in.OnlyNodes, now: in.Now}
	held := allocations(in.Claims, in.Namespace)
	nodes := map[string]*Node{}
	for _, p := range pools(WithRules(in.Slices, in.Rules)) {
		at := place{gpu.NodeOfPool(p.name), p.card}
		devices := held[at]
		delete(held, at)
		if !wanted(in.OnlyNodes, p.node) {
			continue
		}
		if nodes[p.node] == nil {
			nodes[p.node] = &Node{Name: p.node}
		}
		nodes[p.node].Cards = append(nodes[p.node].Cards, buildCard(p, devices, in.Rules, in.Partial))
	}
	follow(nodes, in)
	for _, n := range nodes {
		finishNode(n, in.Nodes)
		m.Nodes = append(m.Nodes, *n)
	}
	slices.SortFunc(m.Nodes, func(a, b Node) int { return cmp.Compare(a.Name, b.Name) })
	m.Lost = lost(held, in.OnlyNodes)
	m.Waiting = waiting(in)
	return m
}

func wanted(only []string, node string) bool {
	return len(only) == 0 || slices.Contains(only, node)
}

func finishNode(n *Node, known []corev1.Node) {
	slices.SortFunc(n.Cards, func(a, b Card) int { return cmp.Compare(a.Name, b.Name) })
	var versions []string
	for _, c := range n.Cards {
		if c.driver != "" && !slices.Contains(versions, c.driver) {
			versions = append(versions, c.driver)
		}
	}
	n.DriverVersion = strings.Join(versions, ", ")
	for _, k := range known {
		if k.Name == n.Name {
			n.State = nodeState(k)
		}
	}
}

func nodeState(n corev1.Node) string {
	var states []string
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue {
			states = append(states, "NotReady")
		}
	}
	if n.Spec.Unschedulable {
		states = append(states, "cordoned")
	}
	return strings.Join(states, ", ")
}

// buildCard puts together one GPU.
func buildCard(p pool, allocated map[string]*Held, rules []resourceapi.DeviceTaintRule, partial bool) Card {
	name := p.card
	var devices []*device
	byName := map[string]*device{}
	for _, d := range p.devices {
		dev := newDevice(name, d)
		devices = append(devices, dev)
		byName[d.Name] = dev
	}
	c := Card{Name: name, Pool: p.name, Incomplete: p.incomplete}
	describe(&c, devices)
	// Where no whole card is published, the counter still tells what it has.
	c.MemoryBytes = max(c.MemoryBytes, p.counters[gpu.CounterMemory])
	c.Positions = positions(p.counters, devices)
	c.Taints = taints(p.name, devices, rules)

	u := usage{total: p.counters, taken: gpu.Counters{}, held: map[string]bool{}}
	for _, h := range allocated {
		d := byName[h.Device]
		if d == nil {
			// The device may be in the part of the pool that is still to come.
			h.Unpublished = p.incomplete == ""
			h.Label = labelFromName(name, h.Device)
		} else {
			h.Label, h.Type, h.Positions = d.label, d.kind, d.positions
			if !partial && p.incomplete == "" {
				h.Left = left(d, h.Holders)
			}
			if !h.onlyAdmin() {
				u = u.with(d)
			}
		}
		c.Held = append(c.Held, *h)
	}
	slices.SortFunc(c.Held, func(a, b Held) int {
		return cmp.Or(slices.Compare(a.Positions, b.Positions), cmp.Compare(a.Device, b.Device))
	})
	c.Mode = mode(devices, u)
	c.Bar = bar(c.Positions, c.Held, u, devices)
	// Nothing is promised about a card that the scheduler does not use, or
	// whose holders are partly unknown.
	if partial || p.incomplete != "" {
		doubt(c.Bar, p.incomplete != "")
	} else {
		c.Fits = fits(u, devices)
	}
	return c
}

// describe copies the facts about the card from its devices: all of them carry
// the product's name, the whole card also what only it has.
func describe(c *Card, devices []*device) {
	set := func(to *string, value string) {
		if *to == "" {
			*to = value
		}
	}
	for _, d := range devices {
		set(&c.Vendor, d.attributes.text("vendor"))
		set(&c.ProductName, d.attributes.text("productName"))
		set(&c.driver, d.attributes.text("driverVersion"))
		set(&c.UUID, d.attributes.text("parentUUID"))
		if d.kind == string(gpu.TypeGPU) {
			set(&c.UUID, d.attributes.text("uuid"))
		}
		if v, ok := d.attributes["resource.kubernetes.io/pciBusID"]; ok && v.StringValue != nil {
			set(&c.PCIBusID, *v.StringValue)
		}
		set(&c.MemoryMode, d.attributes.text("memoryPartition"))
		c.MemoryBytes = max(c.MemoryBytes, d.memory)
	}
}

// mode is that of the devices that are held, nil if none is or none has a mode.
func mode(devices []*device, u usage) *Mode {
	of := map[string]*Mode{}
	var live *Mode
	for _, d := range devices {
		name := d.attributes.mode()
		if name == "" {
			continue
		}
		if of[name] == nil {
			of[name] = &Mode{Name: name}
		}
		// A share is no piece beside the one that it is a share of.
		if !d.shared {
			of[name].Of++
		}
		if u.held[d.name] {
			of[name].Held++
			live = of[name]
		}
	}
	return live
}

func taints(pool string, devices []*device, rules []resourceapi.DeviceTaintRule) []Taint {
	var out []Taint
	for _, d := range devices {
		// A device may have one taint twice, from the driver and from a rule.
		counted := map[int]bool{}
		for _, t := range d.taints {
			same := func(o Taint) bool {
				return o.Key == t.Key && o.Value == t.Value && o.Effect == string(t.Effect)
			}
			i := slices.IndexFunc(out, same)
			if i < 0 {
				i = len(out)
				out = append(out, Taint{Key: t.Key, Value: t.Value, Effect: string(t.Effect), Of: len(devices)})
			}
			if counted[i] {
				continue
			}
			counted[i] = true
			out[i].Devices++
			for _, rule := range RulesBehind(rules, gpu.DriverName, pool, d.name, t) {
				if !slices.Contains(out[i].Rules, rule) {
					out[i].Rules = append(out[i].Rules, rule)
				}
			}
		}
	}
	slices.SortFunc(out, func(a, b Taint) int {
		return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.Value, b.Value), cmp.Compare(a.Effect, b.Effect))
	})
	return out
}

// bar cuts the positions of a card into segments from left to right.
func bar(n int, held []Held, u usage, devices []*device) []Segment {
	owners := make([][]int, n)
	for i, h := range held {
		if !h.onlyAdmin() {
			for _, p := range h.Positions {
				owners[p] = append(owners[p], i)
			}
		}
	}
	var out []Segment
	for p := 0; p < n; p++ {
		s := Segment{Start: p, Size: 1, State: state(p, u, devices)}
		if len(owners[p]) > 0 {
			for p+1 < n && slices.Equal(owners[p], owners[p+1]) {
				p++
			}
			s = Segment{Start: s.Start, Size: p - s.Start + 1, State: Taken, Label: held[owners[p][0]].Label}
			if len(owners[p]) > 1 {
				s.Label = fmt.Sprintf("%d pieces", len(owners[p]))
			}
		}
		out = append(out, s)
	}
	return out
}

// doubt marks what may not be free after all: what looks so, or everything that
// is not known to be held.
func doubt(segments []Segment, all bool) {
	for i, s := range segments {
		if s.State == Free || (all && s.State != Taken) {
			segments[i].State = Unknown
		}
	}
}

// state tells what a position is that nobody holds.
func state(position int, u usage, devices []*device) State {
	found := Leftover
	for _, d := range devices {
		if !slices.Contains(d.positions, position) || !u.fits(d) {
			continue
		}
		if !d.barred {
			return Free
		}
		found = Blocked
	}
	return found
}
