package overview

import (
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/tranche-dev/tranche/pkg/cluster"
	"github.com/tranche-dev/tranche/pkg/cluster/read"
	"github.com/tranche-dev/tranche/pkg/text"
)

// Viewer is what a user may see of a snapshot. The zero Viewer sees everything.
type Viewer struct {
	// Claims and Pods report whether the user may list the objects of a namespace. nil: of all. They do
	// not wait: of a namespace that Ask was not asked about, the user may list nothing.
	Claims, Pods func(namespace string) bool
	// Ask finds out for Claims and Pods what the user may list in namespaces. It waits for the API
	// server. nil: everything is known.
	Ask func(ctx context.Context, claims, pods []string)
	// NoProfiles, NoPlans, NoNodes: the user may not list GPUNodes, PartitionPlans, Nodes.
	NoProfiles, NoPlans, NoNodes bool
	// Key is equal for viewers with equal rights only.
	Key string
}

// Learn asks about namespaces, if there is anything to ask.
func (v Viewer) Learn(ctx context.Context, claims, pods []string) {
	if v.Ask != nil {
		v.Ask(ctx, claims, pods)
	}
}

// HoldersOf returns the namespaces of those who hold devices of a node, which may be nil.
func HoldersOf(n *Node) []string {
	if n == nil {
		return nil
	}
	found := sets.New[string]()
	held := n.Lost
	for i := range n.GPUs {
		held = append(slices.Clip(held), n.GPUs[i].Held...)
	}
	for _, d := range held {
		for _, h := range d.Holders {
			found.Insert(h.Namespace)
		}
	}
	return sets.List(found)
}

// WaitingIn returns the namespaces of what waits.
func (s *Snapshot) WaitingIn() []string {
	found := sets.New[string]()
	for _, w := range s.Waiting {
		found.Insert(w.Namespace)
	}
	return sets.List(found)
}

// Sees reports whether the user may list the claims and the pods of a namespace.
func (v Viewer) Sees(namespace string) bool {
	return sees(v.Claims, namespace) && sees(v.Pods, namespace)
}

func sees(may func(string) bool, namespace string) bool { return may == nil || may(namespace) }

// Node returns the node as the user may see it: holders in other namespaces have no names.
func (v Viewer) Node(n *Node) *Node {
	if n == nil || v.all() {
		return n
	}
	out := *v.Outline(n)
	out.GPUs = slices.Clone(out.GPUs)
	for i := range out.GPUs {
		out.GPUs[i].Held = v.held(out.GPUs[i].Held)
	}
	out.Lost = v.held(n.Lost)
	return &out
}

// Outline returns the node with the profile and the state that the user may see. The names of
// holders are as they were.
func (v Viewer) Outline(n *Node) *Node {
	if !v.NoProfiles && !v.NoNodes {
		return n
	}
	node := n.Node
	if v.NoNodes {
		node.Ready, node.Cordoned = nil, false
	}
	if v.NoProfiles {
		node.Profile, node.Status, node.GPUs = nil, nil, slices.Clone(node.GPUs)
		for i := range node.GPUs {
			node.GPUs[i].GPUState = cluster.GPUState{}
		}
	}
	out := NewNode(node)
	out.Version, out.Lost = n.Version, n.Lost
	return out
}

func (v Viewer) all() bool { return v.Claims == nil && !v.NoProfiles && !v.NoNodes }

func (v Viewer) held(all []cluster.Held) []cluster.Held {
	out := slices.Clone(all)
	for i := range out {
		out[i].Holders = slices.Clone(out[i].Holders)
		for j, h := range out[i].Holders {
			if !h.Hidden && !sees(v.Claims, h.Namespace) {
				out[i].Holders[j] = cluster.Holder{Admin: h.Admin, Hidden: true}
			}
		}
	}
	return out
}

// Waiting returns the waiting claims and pods whose names the user may see, and how many others
// there are.
func (v Viewer) Waiting(s *Snapshot) (named []cluster.Waiting, others int) {
	for _, w := range s.Waiting {
		if v.Sees(w.Namespace) {
			named = append(named, w)
		} else {
			others++
		}
	}
	return named, others
}

// Summary returns what the user may see of the nodes that shows selects, as `kubectl tranche` shows it.
func (v Viewer) Summary(s *Snapshot, shows func(*Node) bool, now time.Time) *cluster.Summary {
	out := &cluster.Summary{Nodes: []cluster.Node{}, Partial: s.Partial, System: s.System, Now: now}
	out.Waiting, _ = v.Waiting(s)
	for _, n := range s.Nodes {
		if !shows(n) {
			continue
		}
		n = v.Node(n)
		out.Lost = append(out.Lost, n.Lost...)
		// A node of which nothing is known but what it has lost is none to show.
		if n.GPUs != nil || n.Profile != nil {
			out.Nodes = append(out.Nodes, n.Node)
		}
	}
	out.Unread = slices.DeleteFunc(v.Unread(s), func(u text.Unread) bool { return u.Resource == read.Plans.Resource })
	return out
}

// Rollouts returns the plans that the user may see.
func (v Viewer) Rollouts(s *Snapshot) []Rollout {
	if v.NoPlans {
		return nil
	}
	return s.Rollouts
}

// Unread returns what could not be read, and what the user may not see.
func (v Viewer) Unread(s *Snapshot) []text.Unread {
	out := slices.Clone(s.Unread)
	for _, k := range []struct {
		hidden bool
		read.Kind
	}{{v.NoProfiles, read.GPUNodes}, {v.NoPlans, read.Plans}, {v.NoNodes, read.Nodes}} {
		if k.hidden {
			out = append(out, k.Forbidden())
		}
	}
	return out
}
