package live

import (
	"cmp"
	"context"
	"maps"
	"reflect"
	"runtime"
	"slices"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/klog/v2"

	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/cluster"
	"github.com/tranche-dev/tranche/pkg/cluster/overview"
	"github.com/tranche-dev/tranche/pkg/cluster/read"
	"github.com/tranche-dev/tranche/pkg/text"
)

// work is what is to be computed again, with all that is needed for it.
type work struct {
	nodes []input
	// waiting is nil if what waits is as it was.
	waiting *cluster.Objects
	plans   []v1beta1.PartitionPlan
	classes []resourceapi.DeviceClass
	unread  []text.Unread

	staleKinds, partial, podsKnown bool
}

// input has the objects of a node.
type input struct {
	name   string
	slices []*packed
	cluster.Objects
}

// Run computes snapshots until ctx ends.
func (s *Store) Run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.wake:
			if s.Step(ctx) {
				s.listeners.notify("")
			}
		}
	}
}

// Step computes a snapshot of what has changed, and reports whether it differs. The first has to
// wait until every kind was read or refused.
func (s *Store) Step(ctx context.Context) bool {
	w, ok := s.take()
	if !ok {
		return false
	}
	before := s.Snapshot()
	now := *before
	now.Version, now.Complete, now.Partial, now.PodsKnown = before.Version+1, true, w.partial, w.podsKnown
	now.Unread, now.Rollouts = w.unread, rollouts(w.plans)
	changed := !before.Complete || !reflect.DeepEqual(now.Unread, before.Unread) || !reflect.DeepEqual(now.Rollouts, before.Rollouts)
	if nodes, shape, any := s.renew(ctx, before, w.nodes, now.Version); any {
		changed, now.Nodes = true, nodes
		if shape {
			now.Shape = now.Version
		}
	}
	if w.waiting != nil {
		waiting := cluster.New(*w.waiting).Summary(ctx, cluster.View{}).Waiting
		changed = changed || !reflect.DeepEqual(waiting, now.Waiting)
		now.Waiting = waiting
	}
	if w.staleKinds || s.samples.fresh {
		now.Kinds, now.System, changed = s.samples.kinds(ctx, w.classes), cluster.SystemNamespace(w.classes), true
	}
	if changed {
		s.snapshot.Store(&now)
	}
	return changed
}

// take takes what is stale.
func (s *Store) take() (*work, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.expected) > 0 {
		return nil, false
	}
	if s.allStale {
		for name := range s.slicesOf {
			s.stale[name] = true
		}
		for name := range s.gpuNodes.all {
			s.stale[name] = true
		}
	}
	_, noClaims := s.unread[read.Claims.Resource]
	_, noPods := s.unread[read.Pods.Resource]
	w := &work{staleKinds: s.staleKinds, partial: noClaims, podsKnown: !noPods, plans: values(s.plans.all)}
	rules := values(s.rules.all)
	for name := range s.stale {
		w.nodes = append(w.nodes, s.input(name, rules, noClaims))
	}
	w.classes = values(s.classes.all)
	if s.staleWaiting {
		o := cluster.Objects{Classes: w.classes, PendingPods: values(s.pods.all), PodsKnown: !noPods, Now: s.now()}
		for _, c := range s.claims.all {
			if c.Status.Allocation == nil {
				o.Claims = append(o.Claims, *c)
			}
		}
		w.waiting = &o
	}
	w.unread = slices.SortedFunc(maps.Values(s.unread), func(a, b text.Unread) int { return cmp.Compare(a.Resource, b.Resource) })
	s.stale, s.allStale, s.staleWaiting, s.staleKinds = map[string]bool{}, false, false, false
	return w, true
}

// input collects the objects of a node. The lock is held.
func (s *Store) input(name string, rules []resourceapi.DeviceTaintRule, noClaims bool) input {
	in := input{name: name, slices: slices.Collect(maps.Values(s.slicesOf[name]))}
	in.Objects = cluster.Objects{Rules: rules, Partial: noClaims, Now: s.now()}
	for _, c := range s.claimsOf[name] {
		in.Claims = append(in.Claims, *c)
	}
	if n := s.nodes.all[name]; n != nil {
		in.Nodes = []corev1.Node{*n}
	}
	if n := s.gpuNodes.all[name]; n != nil {
		in.GPUNodes = []v1beta1.GPUNode{*n}
	}
	return in
}

func values[T any](all map[string]*T) []T {
	out := make([]T, 0, len(all))
	for _, key := range slices.Sorted(maps.Keys(all)) {
		out = append(out, *all[key])
	}
	return out
}

// renew computes nodes again. Those that turn out to be as they were keep their version.
func (s *Store) renew(ctx context.Context, before *overview.Snapshot, stale []input, version uint64) (nodes []*overview.Node, shape, any bool) {
	made := make([]*overview.Node, len(stale))
	seen := make([]samples, len(stale))
	var group errgroup.Group
	group.SetLimit(runtime.GOMAXPROCS(0))
	for i := range stale {
		group.Go(func() error {
			made[i], seen[i] = stale[i].compute(ctx)
			return nil
		})
	}
	_ = group.Wait() // nothing fails
	all := map[string]*overview.Node{}
	for _, n := range before.Nodes {
		all[n.Name] = n
	}
	for i, n := range made {
		s.samples.add(seen[i])
		old := all[stale[i].name]
		switch {
		case n == nil && old == nil:
		case n == nil:
			delete(all, old.Name)
			shape, any = true, true
		case old == nil || old.Model != n.Model:
			n.Version, all[n.Name] = version, n
			shape, any = true, true
		default:
			if n.Version = old.Version; !reflect.DeepEqual(n, old) {
				n.Version, all[n.Name] = version, n
				any = true
			}
		}
	}
	return slices.SortedFunc(maps.Values(all), func(a, b *overview.Node) int { return cmp.Compare(a.Name, b.Name) }), shape, any
}

// compute makes the model of one node, nil if it has no GPUs to show.
func (in *input) compute(ctx context.Context) (*overview.Node, samples) {
	for _, p := range in.slices {
		slice, err := p.unpack()
		if err != nil {
			klog.FromContext(ctx).Error(err, "A ResourceSlice is left out of the web page", "resourceSlice", p.Name)
			continue
		}
		in.Slices = append(in.Slices, slice)
	}
	c := cluster.New(in.Objects)
	summary := c.Summary(ctx, cluster.View{})
	node := cluster.Node{Name: in.name}
	switch {
	case len(summary.Nodes) > 0:
		node = summary.Nodes[0]
	case len(summary.Lost) == 0:
		return nil, samples{}
	}
	out := overview.NewNode(node)
	out.Lost = summary.Lost
	return out, sampled(c)
}

// rollouts returns the plans: those under way first, then by name.
func rollouts(plans []v1beta1.PartitionPlan) []overview.Rollout {
	out := make([]overview.Rollout, 0, len(plans))
	for i := range plans {
		r := overview.Rollout{Paused: plans[i].Spec.Paused}
		r.Rollout, r.Known = cluster.RolloutOf(&plans[i])
		out = append(out, r)
	}
	slices.SortFunc(out, func(a, b overview.Rollout) int {
		over := func(r overview.Rollout) int {
			if r.Result == cluster.RolloutComplete || r.Result == cluster.RolloutUndone {
				return 1
			}
			return 0
		}
		return cmp.Or(cmp.Compare(over(a), over(b)), cmp.Compare(a.Plan, b.Plan))
	})
	return out
}
