package overview

import (
	"cmp"
	"slices"
	"time"

	"github.com/tranche-dev/tranche/pkg/cluster"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/lists"
	"github.com/tranche-dev/tranche/pkg/text"
)

// Snapshot is what is known of the cluster. Nothing in it changes; a change makes another one,
// which shares the nodes that are as they were.
type Snapshot struct {
	// Version grows with every change. Shape is the version of the last change of which nodes
	// there are, and with which GPUs.
	Version, Shape uint64
	// Nodes are those with GPUs, by name.
	Nodes []*Node
	// Waiting are the claims and pods that wait for a device of ours.
	Waiting []cluster.Waiting
	// PodsKnown: pending pods could be read.
	PodsKnown bool
	Rollouts  []Rollout
	// Kinds are the kinds of devices that the nodes publish.
	Kinds []Kind
	// Unread is what could not be read.
	Unread []text.Unread
	// System is the namespace of Tranche, empty if it is not known.
	System string
	// Partial: not all claims could be read, so what looks free may be held.
	Partial bool
	// Complete: every kind of object has been read, or refused, once.
	Complete bool
}

// Node is a node with GPUs.
type Node struct {
	cluster.Node
	// Version is the snapshot's in which it last changed.
	Version uint64
	// Model names its GPUs: "8 × NVIDIA H100 80GB HBM3".
	Model string
	Cells []Cell
	// Fits is how much more fits on all GPUs, each kind counted alone.
	Fits []cluster.Fit
	// Memory is that of all GPUs.
	Memory Memory
	// Lost are devices that claims hold, of GPUs that the node does not publish.
	Lost []cluster.Held
}

// Rollout is a PartitionPlan.
type Rollout struct {
	cluster.Rollout
	// Known: the controller has seen the last change of the plan.
	Known bool
	// Paused is spec.paused of the plan.
	Paused bool
}

// Kind is a kind of devices: a profile, the whole GPU, or shares of one of them.
type Kind struct {
	Label string
	// By is the unit of shares, empty for other kinds. Profile is that of the partition that is
	// shared, empty for the whole GPU.
	By      gpu.Basis
	Profile string
	// Class is the DeviceClass that selects no other kind, empty if there is none.
	Class string
	// Attribute and Value select the kind where no class does.
	Attribute, Value string
}

// Find returns a node, nil if there is none of the name.
func (s *Snapshot) Find(name string) *Node {
	i, ok := slices.BinarySearchFunc(s.Nodes, name, func(n *Node, name string) int { return cmp.Compare(n.Name, name) })
	if !ok {
		return nil
	}
	return s.Nodes[i]
}

// GPU returns a GPU of the node, nil if there is none of the name.
func (n *Node) GPU(name string) *cluster.GPU {
	return lists.Find(n.GPUs, func(g *cluster.GPU) bool { return g.Name == name })
}

// Remarks returns the sentences about the node's profile and its switch.
func (n *Node) Remarks(now time.Time) []cluster.Remark {
	if n.Profile == nil {
		return nil
	}
	return n.Profile.Sentences(now)
}
