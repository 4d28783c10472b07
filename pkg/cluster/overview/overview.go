package overview

import (
	"cmp"
	"slices"

	"github.com/tranche-dev/tranche/pkg/cluster"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/text"
)

// Overview is what `kubectl tranche --summary` shows. `-o json` prints its JSON form.
type Overview struct {
	// States counts the nodes by state, the best first.
	States []StateCount `json:"states"`
	Models []Model      `json:"models"`
	// Trouble has the nodes that somebody should look at, by name.
	Trouble []Trouble `json:"nodesInTrouble,omitempty"`
	// Waiting are the claims and pods that wait for a device.
	Waiting []cluster.Waiting `json:"waiting,omitempty"`
	// Unread is what could not be read.
	Unread []text.Unread `json:"unread,omitempty"`
	// Partial is set if not all claims could be read, so that free capacity is not known.
	Partial bool `json:"-"`
}

// StateCount is how many nodes are in a state.
type StateCount struct {
	State State `json:"state"`
	Count int   `json:"count"`
}

// Model sums up the GPUs of one model.
type Model struct {
	// Name is the product name, empty if the driver does not tell it.
	Name   string `json:"productName"`
	Vendor string `json:"vendor,omitempty"`
	Nodes  int    `json:"nodeCount"`
	GPUs   int    `json:"gpuCount"`
	// Unused is how many GPUs nobody holds any part of, nil if not all claims could be read.
	Unused *int   `json:"unusedGPUCount,omitempty"`
	Memory Memory `json:"memory"`
	// Held counts the devices that claims hold, and the claims that hold shares.
	Held []Held `json:"allocatedDevices,omitempty"`
	// Fits is how often each placement would still fit, each counted alone.
	Fits []cluster.Fit `json:"freeDevices,omitempty"`
}

// Held is how many devices of one kind are held.
type Held struct {
	cluster.DeviceKind
	Count int `json:"count"`
}

// Memory is the memory of GPUs by what can be done with it. A part of a GPU counts as the part of
// its memory.
type Memory struct {
	TotalBytes cluster.Bytes `json:"total"`
	HeldBytes  cluster.Bytes `json:"allocated"`
	FreeBytes  cluster.Bytes `json:"free"`
	// BlockedBytes cannot be allocated because of a taint or because the node takes no pods,
	// LeftoverBytes because no placement is left that fits, and of UnknownBytes nothing is known.
	BlockedBytes  cluster.Bytes `json:"blocked,omitempty"`
	LeftoverBytes cluster.Bytes `json:"leftover,omitempty"`
	UnknownBytes  cluster.Bytes `json:"unknown,omitempty"`
}

// Of sums up the nodes of a summary.
func Of(s *cluster.Summary) Overview {
	o := Overview{States: []StateCount{}, Models: []Model{}, Waiting: s.Waiting, Partial: s.Partial, Unread: s.Unread}
	states, models := map[State]int{}, map[string][]cluster.GPU{}
	nodes := map[string]int{}
	for i := range s.Nodes {
		n := &s.Nodes[i]
		state, reasons := StateOf(n, s.Now)
		states[state]++
		if state.Trouble() {
			o.Trouble = append(o.Trouble, Trouble{Node: n.Name, State: state, Reasons: reasons})
		}
		here := map[string]bool{}
		for j := range n.GPUs {
			model := n.GPUs[j].ProductName
			models[model] = append(models[model], usable(n, n.GPUs[j]))
			if !here[model] {
				here[model] = true
				nodes[model]++
			}
		}
	}
	for _, state := range order {
		if states[state] > 0 {
			o.States = append(o.States, StateCount{state, states[state]})
		}
	}
	for name, gpus := range models {
		o.Models = append(o.Models, newModel(name, nodes[name], gpus, s.Partial))
	}
	slices.SortFunc(o.Models, func(a, b Model) int { return cmp.Or(cmp.Compare(b.GPUs, a.GPUs), cmp.Compare(a.Name, b.Name)) })
	for _, t := range lost(s) {
		if at := slices.IndexFunc(o.Trouble, func(other Trouble) bool { return other.Node == t.Node }); at >= 0 {
			o.Trouble[at].State, o.Trouble[at].Reasons = t.State, append(o.Trouble[at].Reasons, t.Reasons...)
			continue
		}
		o.Trouble = append(o.Trouble, t)
	}
	slices.SortFunc(o.Trouble, func(a, b Trouble) int { return cmp.Compare(a.Node, b.Node) })
	return o
}

// usable returns the GPU, without what is free if its node takes no pods.
func usable(n *cluster.Node, g cluster.GPU) cluster.GPU {
	if n.TakesPods() {
		return g
	}
	g.Fits, g.Bar = nil, slices.Clone(g.Bar)
	for i := range g.Bar {
		for _, state := range []*cluster.State{&g.Bar[i].State, &g.Bar[i].Rest} {
			if *state == cluster.Free {
				*state = cluster.Blocked
			}
		}
	}
	return g
}

func newModel(name string, nodes int, gpus []cluster.GPU, partial bool) Model {
	m := Model{Name: name, Nodes: nodes, GPUs: len(gpus)}
	held, unused := map[cluster.DeviceKind]int{}, 0
	for i := range gpus {
		g := &gpus[i]
		m.Vendor = cmp.Or(m.Vendor, g.Vendor)
		m.Memory.add(MemoryOf(g))
		used := false
		for _, h := range g.Held {
			if n := holders(h); n > 0 {
				held[h.DeviceKind] += n
				used = true
			}
		}
		if !used {
			unused++
		}
	}
	if !partial {
		m.Unused = &unused
	}
	m.Fits = cluster.Plain(cluster.Sum(gpus))
	for kind, count := range held {
		m.Held = append(m.Held, Held{kind, count})
	}
	slices.SortFunc(m.Held, func(a, b Held) int { return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Label, b.Label)) })
	return m
}

// holders returns how often a device is held: once, or by each claim that has a share of it.
func holders(h cluster.Held) int {
	n := 0
	for _, o := range h.Holders {
		if !o.Admin {
			n++
		}
	}
	if h.Type != gpu.TypeShare {
		return min(n, 1)
	}
	return n
}

// MemoryOf divides the memory of a GPU as its bar does.
func MemoryOf(g *cluster.GPU) Memory {
	m := Memory{TotalBytes: g.MemoryBytes}
	if g.Positions == 0 {
		return m
	}
	sums := map[cluster.State]cluster.Bytes{}
	for _, s := range g.Bar {
		n := g.MemoryBytes*cluster.Bytes(s.Start+s.Size)/cluster.Bytes(g.Positions) - g.MemoryBytes*cluster.Bytes(s.Start)/cluster.Bytes(g.Positions)
		left := cluster.Bytes(float64(n)*s.Left/gpu.MiB) * gpu.MiB
		sums[s.State] += n - left
		sums[s.Rest] += left
	}
	m.HeldBytes, m.FreeBytes, m.BlockedBytes = sums[cluster.Taken], sums[cluster.Free], sums[cluster.Blocked]
	m.LeftoverBytes, m.UnknownBytes = sums[cluster.Leftover], sums[cluster.Unknown]
	return m
}

// Percent returns how much of the memory is held.
func (m Memory) Percent() int {
	if m.TotalBytes <= 0 {
		return 0
	}
	return int(float64(m.HeldBytes)/float64(m.TotalBytes)*100 + 0.5)
}

func (m *Memory) add(o Memory) {
	m.TotalBytes += o.TotalBytes
	m.HeldBytes += o.HeldBytes
	m.FreeBytes += o.FreeBytes
	m.BlockedBytes += o.BlockedBytes
	m.LeftoverBytes += o.LeftoverBytes
	m.UnknownBytes += o.UnknownBytes
}
