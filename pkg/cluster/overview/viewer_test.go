package overview_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/pkg/cluster"
	"github.com/tranche-dev/tranche/pkg/cluster/overview"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/test/scenes"
)

// snapshot is that of a scene.
func snapshot(s scenes.Scene) *overview.Snapshot {
	out := &overview.Snapshot{Complete: true, Version: 1}
	summary := s.Summary()
	for _, n := range summary.Nodes {
		out.Nodes = append(out.Nodes, overview.NewNode(n))
	}
	out.Waiting, out.Partial = summary.Waiting, summary.Partial
	return out
}

// A GPU of which only shares are left has room if a claim without an amount gets one.
func TestRoomOfSharesIsOpen(t *testing.T) {
	for left, open := range map[int64]bool{0: false, 4: true} {
		shares := cluster.Shares{Default: gpu.Amount{Memory: 4}, Most: gpu.Amount{Memory: 8}, Left: []gpu.Amount{{Memory: left}}}
		n := overview.NewNode(cluster.Node{GPUs: []cluster.GPU{{Shares: []cluster.Shares{shares}}}})
		assert.Equal(t, open, n.Cells[0].Open, left)
	}
}

// The models of a node are counted, each under its name, in the order in which they come.
func TestModels(t *testing.T) {
	for want, products := range map[string][]string{
		"no GPUs are published": {},
		"3 × H100":              {"H100", "H100", "H100"},
		"2 × H100, 1 × A100":    {"H100", "A100", "H100"},
		"1 × A100, 2 × GPU of unknown model, 1 × H100": {"A100", "", "H100", ""},
	} {
		var n cluster.Node
		for _, product := range products {
			n.GPUs = append(n.GPUs, cluster.GPU{ProductName: product})
		}
		assert.Equal(t, want, overview.NewNode(n).Model)
	}
}

// Names of other namespaces never leave the snapshot for those who may not see them; that
// something is held does.
func TestViewerHidesNames(t *testing.T) {
	s := snapshot(scenes.Mixed())
	s.Waiting = []cluster.Waiting{{Namespace: "default", Pod: "mine"}, {Namespace: "team-b", Pod: "theirs"}}
	only := func(namespace string) bool { return namespace == "default" }
	v := overview.Viewer{Claims: only, Pods: only}
	n, full := v.Node(s.Nodes[0]), s.Nodes[0]
	named, hidden := 0, 0
	for i, g := range n.GPUs {
		require.Len(t, g.Held, len(full.GPUs[i].Held))
		assert.Equal(t, full.GPUs[i].Bar, g.Bar)
		for _, h := range g.Held {
			for _, o := range h.Holders {
				if o.Hidden {
					hidden++
					assert.Empty(t, o.Namespace+o.Claim)
					assert.Empty(t, o.Pods)
				} else {
					named++
					assert.Equal(t, "default", o.Namespace)
				}
			}
		}
	}
	assert.Positive(t, named)
	assert.Positive(t, hidden)
	for _, g := range full.GPUs {
		for _, h := range g.Held {
			assert.False(t, h.Holders[0].Hidden, "the snapshot itself must not change")
		}
	}
	waiting, others := v.Waiting(s)
	assert.Equal(t, []cluster.Waiting{{Namespace: "default", Pod: "mine"}}, waiting)
	assert.Equal(t, 1, others)
	assert.True(t, v.Sees("default"))
	assert.False(t, v.Sees("team-b"))
}

func TestViewerWithoutProfiles(t *testing.T) {
	s := snapshot(scenes.Switching())
	s.Rollouts = []overview.Rollout{{}}
	v := overview.Viewer{NoProfiles: true, NoPlans: true, NoNodes: true}
	n := v.Node(s.Nodes[0])
	assert.Contains(t, n.States(), "switching", "its devices are tainted")
	assert.Empty(t, v.Rollouts(s))
	for _, v := range []overview.Viewer{v, {NoProfiles: true}} {
		n := v.Node(s.Nodes[0])
		assert.Nil(t, n.Profile)
		assert.Nil(t, n.Status)
		for _, g := range n.GPUs {
			assert.Equal(t, cluster.GPUState{}, g.GPUState, "the GPUNode says it")
		}
		assert.Zero(t, overview.TotalsOf(v, s).Switching)
		assert.Zero(t, overview.TotalsOf(v, s).Problems)
	}
	closed := snapshot(scenes.TwoNodes()).Nodes[1]
	require.Equal(t, "NotReady, cordoned", closed.State())
	assert.Empty(t, overview.Viewer{NoNodes: true}.Node(closed).State())
	assert.Nil(t, v.Node(nil))
	assert.Positive(t, overview.TotalsOf(overview.Viewer{}, s).Switching)
	assert.Len(t, v.Unread(s), 3)
	assert.Empty(t, overview.Viewer{}.Unread(s))
}

func TestGroupsAndTotals(t *testing.T) {
	s := snapshot(scenes.BothVendors())
	groups := overview.GroupsOf(s)
	require.Len(t, groups, 2)
	totals := overview.TotalsOf(overview.Viewer{}, s)
	assert.Equal(t, totals.GPUs, groups[0].GPUs+groups[1].GPUs)
	assert.Equal(t, totals.Memory.TotalBytes, groups[0].Memory.TotalBytes+groups[1].Memory.TotalBytes)
	assert.Equal(t, totals.GPUs, totals.Full+totals.Part+totals.Empty)
	for _, g := range groups {
		assert.Equal(t, cluster.Plain(cluster.Sum(gpus(g))), g.Fits)
	}
}

func gpus(g overview.Group) (all []cluster.GPU) {
	for _, n := range g.Nodes {
		all = append(all, n.GPUs...)
	}
	return all
}

func TestRoomFor(t *testing.T) {
	s := snapshot(scenes.TwoNodes())
	s.Kinds = []overview.Kind{{Label: "1g.10gb", Class: "gpu-mig-1g-10gb.tranche.dev"}, {Label: "2g.20gb", Attribute: "profile", Value: "2g.20gb"}, {Label: cluster.WholeGPU, Class: "gpu.tranche.dev"}}
	r := overview.RoomFor(s, " 1G.10gb ")
	require.True(t, r.Known)
	sum := 0
	for _, p := range r.Places {
		assert.Positive(t, p.Count)
		sum += p.Count
	}
	assert.Equal(t, r.Count, sum)
	assert.Positive(t, sum)
	assert.Contains(t, r.Claim, "deviceClassName: gpu-mig-1g-10gb.tranche.dev")
	assert.Contains(t, overview.RoomFor(s, "2g.20gb").Claim, `device.attributes["gpu.tranche.dev"].?profile.orValue("") == "2g.20gb"`)
	assert.Equal(t, cluster.WholeGPU, overview.RoomFor(s, "gpu").Kind.Label)
	assert.False(t, overview.RoomFor(s, "9g.90gb").Known)

	before := overview.RoomFor(s, "1g.10gb").Count
	fleet := snapshot(scenes.Fleet())
	fleet.Kinds = s.Kinds
	first := overview.RoomFor(fleet, "1g.10gb").Places[0].Node
	assert.Nil(t, fleet.Find("a"))
	n := fleet.Find(first)
	n.GPUs = n.GPUs[len(n.GPUs)-1:]
	places := overview.RoomFor(fleet, "1g.10gb").Places
	assert.Equal(t, first, places[len(places)-1].Node, "the most room first: %v", places)

	s.Nodes[0].Cordoned = true
	assert.Less(t, overview.RoomFor(s, "1g.10gb").Count, before, "a cordoned node has no room")
}

// A summary has the nodes that are selected, with what the user may see of them; of a node of which only
// what it has lost is known, it has that.
func TestSummaryOfAViewer(t *testing.T) {
	s := snapshot(scenes.TwoNodes())
	gone := overview.NewNode(cluster.Node{Name: "gone"})
	gone.Lost = []cluster.Held{{Holders: []cluster.Holder{{Namespace: "team-c"}, {Namespace: "team-a"}}}}
	s.Nodes = append(s.Nodes, gone)
	s.Partial, s.System = true, "gpus"
	s.Waiting = []cluster.Waiting{{Namespace: "team-b"}, {Namespace: "team-a"}, {Namespace: "team-b"}}
	s.Rollouts = []overview.Rollout{{}}
	only := func(namespace string) bool { return namespace == "team-a" }
	now := time.Unix(1, 0)
	out := overview.Viewer{Claims: only, Pods: only, NoPlans: true, NoNodes: true}.Summary(s, func(n *overview.Node) bool { return n.Name != "node-b" }, now)
	require.Len(t, out.Nodes, 1)
	assert.Equal(t, "node-a", out.Nodes[0].Name)
	assert.Equal(t, []cluster.Held{{Holders: []cluster.Holder{{Hidden: true}, {Namespace: "team-a"}}}}, out.Lost)
	assert.Equal(t, []cluster.Waiting{{Namespace: "team-a"}}, out.Waiting)
	require.Len(t, out.Unread, 1, "a summary has no plans")
	assert.Equal(t, "nodes", out.Unread[0].Resource)
	assert.True(t, out.Partial)
	assert.Equal(t, "gpus", out.System)
	assert.Equal(t, now, out.Now)
	assert.Len(t, overview.Viewer{}.Rollouts(s), 1)

	assert.Equal(t, []string{"team-a", "team-b"}, s.WaitingIn())
	assert.Equal(t, []string{"team-a", "team-c"}, overview.HoldersOf(gone))
	assert.Equal(t, []string{"team-a"}, overview.HoldersOf(s.Nodes[0]))
	assert.Empty(t, overview.HoldersOf(nil))
	assert.Contains(t, gone.States(), "problem")
	var asked []string
	overview.Viewer{Ask: func(_ context.Context, claims, pods []string) { asked = slices.Concat(claims, pods) }}.Learn(t.Context(), []string{"a"}, []string{"b"})
	assert.Equal(t, []string{"a", "b"}, asked)
	overview.Viewer{}.Learn(t.Context(), nil, nil)
}
