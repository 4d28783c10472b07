package live

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/tranche-dev/tranche/pkg/cluster"
	"github.com/tranche-dev/tranche/pkg/cluster/overview"
	"github.com/tranche-dev/tranche/pkg/cluster/read"
	"github.com/tranche-dev/tranche/pkg/text"
	"github.com/tranche-dev/tranche/pkg/why"
)

// maxExplained is how many nodes an explanation considers: their slices are unpacked for it.
const maxExplained = 64

// Explain explains why a pending pod does not run, as a viewer may know it, by what the store has.
// It is nil if there is no such pod. One explanation is made at a time: it copies all claims.
func (s *Store) Explain(ctx context.Context, v overview.Viewer, namespace, name string) (*why.Explanation, error) {
	holders, found := s.holders(namespace, name)
	if !found {
		return nil, nil //nolint:nilnil // there is no such pod
	}
	v.Learn(ctx, holders, nil)
	select {
	case s.explaining <- struct{}{}:
		defer func() { <-s.explaining }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	nodes, left := candidates(s.Snapshot())
	in, packs := s.inputFor(v, namespace, name, nodes)
	if in == nil {
		return nil, nil //nolint:nilnil // it has gone
	}
	for _, p := range packs {
		slice, err := p.unpack()
		if err != nil {
			return nil, err
		}
		in.Slices = append(in.Slices, slice)
	}
	const cause = "this page does not read them; kubectl tranche why does"
	for _, r := range []why.Resource{why.ResourceTemplates, why.ResourceEvents, why.ResourceNodeEvents} {
		in.Unread = append(in.Unread, why.NotRead(r, namespace, cause))
	}
	e := why.Explain(ctx, *in)
	if e.State == why.RoomNow && cluster.RequestsOf(in.Pod) != nil {
		e.Unread = append(e.Unread, why.NotRead(why.ResourceRequests, "", cause))
	}
	if left > 0 {
		e.Unread = append(e.Unread, text.Unread{
			Verb: "list", Resource: read.Slices.Resource, Message: "kubectl tranche why considers all",
			Consequence: fmt.Sprintf("this page considers the %d nodes with the most free memory only, and not %d others", len(nodes), left),
		})
	}
	return e, nil
}

// holders returns the namespaces of all claims, if there is such a pod.
func (s *Store) holders(namespace, name string) (namespaces []string, found bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pods.all[namespace+"/"+name] == nil {
		return nil, false
	}
	all := map[string]bool{}
	for _, c := range s.claims.all {
		all[c.Namespace] = true
	}
	return slices.Sorted(maps.Keys(all)), true
}

// inputFor collects what explains a pod, without what the viewer may not see.
func (s *Store) inputFor(v overview.Viewer, namespace, name string, nodes []string) (*why.Input, []*packed) {
	in, packs, claims := s.objectsFor(namespace, name, nodes)
	if in == nil {
		return nil, nil
	}
	for _, c := range claims {
		if v.Claims != nil && !v.Claims(c.Namespace) {
			c = anonymous(c)
		}
		in.Claims = append(in.Claims, *c)
	}
	slices.SortFunc(in.Claims, func(a, b resourceapi.ResourceClaim) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	if v.NoNodes {
		in.Nodes = nil
		in.Unread = append(in.Unread, why.Denied(why.ResourceNodes, ""))
	}
	if v.NoProfiles {
		in.GPUNodes = nil
		in.Unread = append(in.Unread, why.Denied(why.ResourceGPUNodes, ""))
	}
	return in, packs
}

// objectsFor collects the objects that explain a pod. What the store keeps does not change, so that
// the lock is not needed for long.
func (s *Store) objectsFor(namespace, name string, nodes []string) (*why.Input, []*packed, []*resourceapi.ResourceClaim) {
	s.mu.Lock()
	defer s.mu.Unlock()
	pod := s.pods.all[namespace+"/"+name]
	if pod == nil {
		return nil, nil, nil
	}
	in := &why.Input{Pod: pod}
	in.Now, in.Classes, in.Rules, in.PendingPods = s.now(), values(s.classes.all), values(s.rules.all), []corev1.Pod{*pod}
	_, in.Partial = s.unread[read.Claims.Resource]
	var packs []*packed
	for _, node := range nodes {
		packs = slices.AppendSeq(packs, maps.Values(s.slicesOf[node]))
		if n := s.nodes.all[node]; n != nil {
			in.Nodes = append(in.Nodes, *n)
		}
		if n := s.gpuNodes.all[node]; n != nil {
			in.GPUNodes = append(in.GPUNodes, *n)
		}
	}
	return in, packs, slices.Collect(maps.Values(s.claims.all))
}

// anonymous returns a claim of which nobody learns more than what it holds.
func anonymous(c *resourceapi.ResourceClaim) *resourceapi.ResourceClaim {
	out := &resourceapi.ResourceClaim{}
	out.Namespace, out.Name, out.Status.Allocation = "another namespace", "", c.Status.Allocation
	if len(c.Status.ReservedFor) > 0 {
		out.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: "a pod"}}
	}
	return out
}

// candidates returns the nodes with the most free memory of each model, and how many others there are.
func candidates(s *overview.Snapshot) (names []string, left int) {
	groups := overview.GroupsOf(s)
	for _, g := range groups {
		nodes := slices.Clone(g.Nodes)
		slices.SortStableFunc(nodes, func(a, b *overview.Node) int {
			return cmp.Compare(b.Memory.TotalBytes-b.Memory.HeldBytes, a.Memory.TotalBytes-a.Memory.HeldBytes)
		})
		for _, n := range nodes[:min(len(nodes), max(1, maxExplained/len(groups)))] {
			names = append(names, n.Name)
		}
	}
	return names, len(s.Nodes) - len(names)
}
