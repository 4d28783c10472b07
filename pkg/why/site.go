package why

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/tranche-dev/tranche/pkg/cluster"
)

// Site is a node for which many wishes are judged.
type Site struct {
	world *world
	// node is nil if it publishes no GPUs; nothing is the answer then.
	node    *corev1.Node
	nothing Answer
}

// NewSite makes the model of a node. The objects need only be those that concern the node: its claims are
// those that hold devices of it.
func NewSite(o cluster.Objects, name string) *Site {
	in := &Input{Objects: o, Pod: &corev1.Pod{}}
	s := &Site{world: newWorld(in), nothing: GPUsUnusable}
	s.world.brief = true
	for _, n := range s.world.nodes() {
		if n.Name == name {
			s.node = n
			return s
		}
	}
	gone := s.world.unpublished(nil)
	if i := slices.IndexFunc(gone, func(n Node) bool { return n.Name == name }); i >= 0 {
		s.nothing = gone[i].answer()
	}
	return s
}

// Answer is why the node does not serve a wish, None if it does. It is not known if the context ends, or
// if the scheduler could not tell either.
func (s *Site) Answer(ctx context.Context, w *Wish) (a Answer, known bool) {
	if s.node == nil {
		return s.nothing, true
	}
	in, c := *s.world.in, *s.world
	in.Pod, c.in = w.pod, &in
	n := c.node(ctx, s.node, cluster.Node{}, w.demand)
	c.addSwitch(&n)
	s.world.bare = c.bare // once is enough
	if a = n.answer(); ctx.Err() != nil || a == unknown {
		return None, false
	}
	return a, true
}
