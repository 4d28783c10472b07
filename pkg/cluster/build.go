package cluster

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/lists"
	"github.com/tranche-dev/tranche/pkg/text"
)

// View selects the content of a Summary.
type View struct {
	// Nodes are the nodes to show, nil for all. Selector is the label selector that chose them,
	// if one did.
	Nodes    []string
	Selector string
	// Namespace is the namespace whose holders are named, empty for all. Holders of other
	// namespaces are anonymous, because their devices are not free.
	Namespace string
}

func (v View) shows(node string) bool {
	return v.Nodes == nil || slices.Contains(v.Nodes, node)
}

// Summary sums up the GPUs of the nodes.
func (c *Cluster) Summary(ctx context.Context, v View) *Summary {
	s := &Summary{Nodes: []Node{}, Partial: c.Partial, Unread: c.Unread, Only: v.Nodes, Selector: v.Selector, Now: c.Now, System: SystemNamespace(c.Classes), Waiting: c.waiting(ctx, v.Namespace)}
	nodes := map[string]*Node{}
	for _, p := range c.Pools {
		if p.GPU == "" || !v.shows(p.Node) {
			continue
		}
		if nodes[p.Node] == nil {
			nodes[p.Node] = &Node{Name: p.Node}
		}
		nodes[p.Node].GPUs = append(nodes[p.Node].GPUs, c.gpu(p, v))
	}
	c.addProgress(nodes, v)
	for _, n := range nodes {
		slices.SortFunc(n.GPUs, func(a, b GPU) int { return cmp.Compare(a.Name, b.Name) }) // a node can have several pools
		n.setState(c.Node(n.Name))
		s.Nodes = append(s.Nodes, *n)
	}
	slices.SortFunc(s.Nodes, func(a, b Node) int { return cmp.Compare(a.Name, b.Name) })
	for _, h := range c.lost {
		if v.shows(h.pool) { // it has the name of its node
			s.Lost = append(s.Lost, h.unpublished(true, v))
		}
	}
	return s
}

// addProgress adds the GPUNodes. A node that publishes no GPUs is shown if it had some, or if its profile
// is the reason.
func (c *Cluster) addProgress(nodes map[string]*Node, v View) {
	known := !slices.ContainsFunc(c.Unread, func(u text.Unread) bool { return u.Resource == resourceapi.Resource("resourceslices").String() })
	for i := range c.GPUNodes {
		g := &c.GPUNodes[i]
		if !v.shows(g.Name) {
			continue
		}
		progress, n := ProgressOf(g), nodes[g.Name]
		if n == nil {
			none := g.Status.Node != nil && len(g.Status.Node.GPUs) == 0
			progress.Unpublished = known && g.Status.Node != nil && !none
			if none || len(progress.Sentences(c.Now)) == 0 {
				continue
			}
			n = &Node{Name: g.Name, GPUs: []GPU{}}
			nodes[g.Name] = n
		}
		n.Profile, n.Status = &progress, &g.Status
		for i, state := range GPUsOf(g) {
			if j := slices.IndexFunc(n.GPUs, func(shown GPU) bool { return shown.Name == g.Status.Node.GPUs[i].Name }); j >= 0 {
				n.GPUs[j].GPUState = state
			}
		}
	}
}

func (n *Node) setState(known *corev1.Node) {
	if known == nil {
		return
	}
	ready := !slices.ContainsFunc(known.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue
	})
	n.Ready = &ready
	n.Cordoned = known.Spec.Unschedulable
}

// NotReady reports whether the node is known not to be ready.
func (n *Node) NotReady() bool { return n.Ready != nil && !*n.Ready }

// State says whether the node takes pods: "NotReady", "cordoned", both, or empty if it does.
func (n *Node) State() string {
	var states []string
	if n.NotReady() {
		states = append(states, names.ReasonNotReady)
	}
	if n.Cordoned {
		states = append(states, "cordoned")
	}
	return strings.Join(states, ", ")
}

// DriverVersion returns the versions of the drivers of the node's GPUs: mostly one.
func (n *Node) DriverVersion() string {
	versions := lists.Union(nil, lists.Map(n.GPUs, func(g GPU) string { return g.DriverVersion })...)
	return strings.Join(slices.DeleteFunc(versions, func(v string) bool { return v == "" }), ", ")
}

// TakesPods reports whether the scheduler puts pods on the node.
func (n *Node) TakesPods() bool { return !n.NotReady() && !n.Cordoned }

// gpu sums up one GPU. It has no free capacity if the scheduler does not use the GPU, or if
// holders may be missing.
func (c *Cluster) gpu(p *Pool, v View) GPU {
	out := GPU{Name: p.GPU, Positions: p.positions, Taints: p.taints(c.Rules), Mode: p.mode(), MissingSlices: p.missing()}
	out.describe(p)
	sure := !c.Partial && !p.Incomplete()
	for _, d := range p.Devices {
		if len(d.Holders) == 0 {
			continue
		}
		h := Held{Device: d.Name, DeviceKind: d.DeviceKind, Pool: p.Name, Positions: d.positions}
		if sure && d.Shared() {
			h.Left = d.Left()
		}
		out.Held = append(out.Held, h.by(d.Holders, v))
	}
	for _, h := range p.gone {
		// The device may be in a slice that is not published yet.
		out.Held = append(out.Held, h.unpublished(!p.Incomplete(), v))
	}
	slices.SortFunc(out.Held, func(a, b Held) int {
		return cmp.Or(slices.Compare(a.Positions, b.Positions), cmp.Compare(a.Device, b.Device))
	})
	out.Bar = p.bar(out.Held)
	if sure {
		out.Fits, out.Shares = p.fits(), p.shares()
	} else {
		doubt(out.Bar, p.Incomplete())
	}
	return out
}

func (h Held) by(holders []Holder, v View) Held {
	for _, o := range holders {
		h.Holders = append(h.Holders, o.seenFrom(v.Namespace))
	}
	return h
}

func (h *held) unpublished(sure bool, v View) Held {
	return Held{Device: h.device, Pool: h.pool, DeviceKind: DeviceKind{Label: labelOfName(h.device)}, Unpublished: sure}.by(h.holders, v)
}

// onlyAdmin reports whether all holders have admin access.
func (h *Held) onlyAdmin() bool {
	return !slices.ContainsFunc(h.Holders, func(o Holder) bool { return !o.Admin })
}

// describe copies attributes of the GPU from its devices.
func (g *GPU) describe(p *Pool) {
	set := func(to *string, value string) { *to = cmp.Or(*to, value) }
	for _, d := range p.Devices {
		set(&g.Vendor, d.text("vendor"))
		set(&g.ProductName, d.text("productName"))
		set(&g.DriverVersion, d.text("driverVersion"))
		set(&g.UUID, d.text("parentUUID"))
		if d.Type == gpu.TypeGPU {
			set(&g.UUID, d.text("uuid"))
		}
		if v, ok := d.Attributes["resource.kubernetes.io/pciBusID"]; ok && v.StringValue != nil {
			set(&g.PCIBusID, *v.StringValue)
		}
		set(&g.MemoryMode, d.text("memoryPartition"))
		g.MemoryBytes = max(g.MemoryBytes, d.memory())
	}
	// Without a whole GPU, the counter has the memory.
	g.MemoryBytes = max(g.MemoryBytes, Bytes(p.Total[names.CounterMemory]))
}

// mode returns the mode of the held devices, nil if none is held or has a mode.
func (p *Pool) mode() *Mode {
	name, _ := p.Users()
	if name == "" {
		return nil
	}
	m := &Mode{Name: name}
	for _, d := range p.Devices {
		// A share does not count in addition to its device.
		if d.Mode() == name && !d.Shared() {
			m.Of++
		}
		if d.Mode() == name && d.Held() {
			m.Held++
		}
	}
	return m
}

func (p *Pool) taints(rules []resourceapi.DeviceTaintRule) []Taint {
	var out []Taint
	devices := lists.Filter(p.Devices, func(d *Device) bool { return d.Type != gpu.TypeMonitor })
	for _, d := range devices {
		// The driver and a rule can set the same taint.
		counted := map[int]bool{}
		for _, t := range d.Taints {
			i := slices.IndexFunc(out, func(o Taint) bool { return o.Key == t.Key && o.Value == t.Value && o.Effect == t.Effect })
			if i < 0 {
				i = len(out)
				out = append(out, Taint{Key: t.Key, Value: t.Value, Effect: t.Effect, Of: len(devices)})
			}
			if counted[i] {
				continue
			}
			counted[i] = true
			out[i].Devices++
			out[i].Rules = lists.Union(out[i].Rules, RulesBehind(rules, d, t)...)
		}
	}
	slices.SortFunc(out, func(a, b Taint) int {
		return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.Value, b.Value), cmp.Compare(a.Effect, b.Effect))
	})
	return out
}

// bar divides the positions of a GPU into segments, from left to right.
func (p *Pool) bar(held []Held) []Segment {
	owners := make([][]int, p.positions)
	for i, h := range held {
		if !h.onlyAdmin() {
			for _, at := range h.Positions {
				owners[at] = append(owners[at], i)
			}
		}
	}
	var out []Segment
	for at := 0; at < p.positions; at++ {
		s := Segment{Start: at, Size: 1, State: p.state(at)}
		if len(owners[at]) > 0 {
			for at+1 < p.positions && slices.Equal(owners[at], owners[at+1]) {
				at++
			}
			s = Segment{Start: s.Start, Size: at - s.Start + 1, State: Taken, Label: held[owners[at][0]].Label}
			if len(owners[at]) > 1 {
				s.Label = fmt.Sprintf("%d pieces", len(owners[at]))
			} else if d := p.device(held[owners[at][0]].Device); d != nil && d.Shared() {
				s.Left, s.Rest = d.leftPart(), Free
				if d.barred() {
					s.Rest = Blocked
				}
			}
		}
		out = append(out, s)
	}
	return out
}

// doubt marks free positions as unknown, or all that are not held.
func doubt(segments []Segment, all bool) {
	for i, s := range segments {
		if s.State == Free || (all && s.State != Taken) {
			segments[i].State = Unknown
		}
		if s.Rest == Free || all && s.Rest != "" {
			segments[i].Rest = Unknown
		}
	}
}

// device returns a device by its name, nil if it is not published.
func (p *Pool) device(name string) *Device {
	i := slices.IndexFunc(p.Devices, func(d *Device) bool { return d.Name == name })
	if i < 0 {
		return nil
	}
	return p.Devices[i]
}

// state returns the state of a position that nobody holds.
func (p *Pool) state(position int) State {
	found := Leftover
	for _, d := range p.Devices {
		if !slices.Contains(d.positions, position) || !p.Fits(d) {
			continue
		}
		if !d.barred() {
			return Free
		}
		found = Blocked
	}
	return found
}
