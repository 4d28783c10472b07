package rollout

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/tranche-dev/tranche/api/v1alpha1"
)

// limits are the limits of a rollout.
type limits struct {
	// unavailable is how many nodes may be on their way, failures how many may have failed.
	unavailable, failures int
	topology              *v1alpha1.TopologyLimit
	order                 *v1alpha1.NodeOrder
	// room is how many nodes may have the target.
	room int
}

// admission admits nodes one after the other.
type admission struct {
	*tally
	limits
	next int
}

// admit begins to admit nodes.
func (t *tally) admit(l limits) *admission {
	slices.SortFunc(t.candidates, func(a, b *Node) int {
		return cmp.Or(cmp.Compare(rank(a, t.target), rank(b, t.target)), before(a, b, l.order))
	})
	return &admission{tally: t, limits: l}
}

// rank is the order of kinds of nodes: first those that have neither state, then those that
// were admitted before, and last those that failed and try again.
func rank(n *Node, target string) int {
	switch {
	case n.Moving || n.broken():
		return 0
	case n.retries(target):
		return 3
	case n.Desired == target:
		return 1
	}
	return 2
}

// one admits the next node, empty: none can be admitted now.
func (a *admission) one() string {
	for ; a.next < len(a.candidates); a.next++ {
		n := a.candidates[a.next]
		if !a.fits(n) {
			continue
		}
		a.next++
		if !n.Moving {
			a.move(n)
		}
		if !n.retries(a.target) { // Those are counted.
			a.used++
			if n.Damaged && n.broken() {
				a.damaged--
			}
		}
		return n.Name
	}
	return ""
}

// fits tells whether a node can be admitted. One that has neither state can be: that makes
// nothing worse.
func (a *admission) fits(n *Node) bool {
	retries := n.retries(a.target)
	if a.used >= a.room && !retries {
		return false
	}
	if n.Moving {
		return true
	}
	if !retries && !n.broken() && a.tally.failures+a.damaged > a.limits.failures {
		return false
	}
	if a.moving >= a.unavailable {
		return false
	}
	if a.limits.topology == nil {
		return true
	}
	zone := n.Labels[a.tally.topology]
	return a.zones[zone] < max(1, Scaled(&a.limits.topology.MaxUnavailable, a.sizes[zone], false))
}

// Ordered sorts nodes in the order in which a plan switches them.
func Ordered(nodes []*Node, order *v1alpha1.NodeOrder) {
	slices.SortFunc(nodes, func(a, b *Node) int { return before(a, b, order) })
}

func before(a, b *Node, order *v1alpha1.NodeOrder) int {
	if order != nil && order.By == v1alpha1.OrderByLabel {
		return cmp.Or(byLabel(a, b, order.Label), cmp.Compare(a.Name, b.Name))
	}
	return cmp.Or(cmp.Compare(a.Held, b.Held), cmp.Compare(b.Free, a.Free), cmp.Compare(a.Name, b.Name))
}

func byLabel(a, b *Node, label string) int {
	left, okLeft := a.Labels[label]
	right, okRight := b.Labels[label]
	switch {
	case !okLeft && !okRight:
		return 0
	case !okLeft:
		return 1
	case !okRight:
		return -1
	}
	x, errX := strconv.ParseInt(left, 10, 64)
	y, errY := strconv.ParseInt(right, 10, 64)
	switch {
	case errX == nil && errY == nil:
		return cmp.Compare(x, y)
	case errX == nil: // Numbers come before other values.
		return -1
	case errY == nil:
		return 1
	}
	return cmp.Compare(left, right)
}

// grant grants what was admitted before. If no more nodes may start, only those that are on
// their way go on.
func (t *tally) grant(granted map[string]string, open bool) {
	names := t.going
	if open {
		names = slices.Concat(names, t.diverted, t.admitted)
	}
	for _, name := range names {
		granted[name] = t.target
	}
}

// unlimited is more than the number of nodes.
const unlimited = 1 << 30

// watchedFor is how long a node without a plan is watched after its switch.
const watchedFor = 10 * time.Minute

func soonAfter(n *Node) bool { return n.Trouble.Since.Before(n.Ended.Add(watchedFor)) }

// Together are the rollouts of profiles without a plan. They share a budget.
type Together struct {
	// MaxUnavailable and MaxFailures are a number, or a percentage: the first of all of these
	// nodes, the second of those with the same target.
	MaxUnavailable, MaxFailures intstr.IntOrString
	// Nodes are the nodes by target.
	Nodes   map[string][]*Node
	Granted map[string]string
}

// Result is what became of the rollouts.
type Result struct {
	// Granted are the targets of the nodes that may start or go on.
	Granted map[string]string
	// Stopped are the failed nodes of targets with too many of them.
	Stopped map[string][]v1alpha1.PlanNode
	// Moving is how many nodes are being switched, Limit how many may be.
	Moving, Limit int
	// Wake is when to decide again, zero: never.
	Wake time.Time
}

// Decide admits nodes to targets in turn.
func (r *Together) Decide() Result {
	out := Result{Granted: map[string]string{}, Stopped: map[string][]v1alpha1.PlanNode{}}
	var turns []*admission
	nodes := 0
	targets := make([]string, 0, len(r.Nodes))
	for target := range r.Nodes {
		targets = append(targets, target)
	}
	slices.Sort(targets)
	for _, target := range targets {
		t := count(r.Nodes[target], target, r.Granted, time.Time{}, nil, false, soonAfter)
		nodes += len(r.Nodes[target])
		failures := Scaled(&r.MaxFailures, t.eligible(), false)
		t.grant(out.Granted, t.failures <= failures)
		if t.failures > failures {
			out.Stopped[target] = listed(t.failed)
		}
		out.Moving += t.moving
		out.Wake = Earliest(out.Wake, t.wake)
		turns = append(turns, t.admit(limits{failures: failures, room: unlimited}))
	}
	out.Limit = max(1, Scaled(&r.MaxUnavailable, nodes, false))
	for progress := true; progress; {
		progress = false
		for _, a := range turns {
			others := out.Moving - a.moving
			a.unavailable = out.Limit - others
			before := a.moving
			if name := a.one(); name != "" {
				out.Granted[name] = a.target
				progress = true
			}
			out.Moving += a.moving - before
		}
	}
	return out
}

// Earliest is the earlier of two times. Zero means never.
func Earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
