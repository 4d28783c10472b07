package rollout

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/tranche-dev/tranche/api/v1beta1"
)

type limits struct {
	// unavailable is how many nodes may be switching.
	unavailable int
	topology    []v1beta1.TopologyLimit
	order       v1beta1.NodeOrder
	// room is how many nodes may have the target.
	room int
}

// candidate is a node that can be admitted, and the rollout that it belongs to.
type candidate struct {
	*Node
	to *tally
}

// admit admits nodes of rollouts that share limits, one after the other, and returns their targets.
// Nodes that were admitted before and have not begun need a place again, before others.
func (l *limits) admit(rollouts ...*tally) map[string]string {
	var all []candidate
	moving := 0
	for _, t := range rollouts {
		moving += t.moving
		for _, n := range t.candidates {
			all = append(all, candidate{n, t})
		}
	}
	slices.SortFunc(all, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.rank(), b.rank()), before(a.Node, b.Node, l.order))
	})
	admitted := map[string]string{}
	for _, c := range all {
		if !c.fits(l, moving) {
			continue
		}
		admitted[c.Name] = c.to.target
		if !c.Moving {
			moving++
			c.to.move(c.Node)
		}
		if !c.retries(c.to.target) { // Those are counted.
			c.to.used++
			if c.Damaged && c.broken() {
				c.to.damaged--
			}
		}
	}
	return admitted
}

// rank orders kinds of nodes: first those that have neither state, then those that were admitted
// before, and last those that failed and try again.
func (c *candidate) rank() int {
	switch {
	case c.Moving || c.broken():
		return 0
	case c.Admitted == c.to.target:
		return 1
	case c.retries(c.to.target):
		return 4
	case c.Desired == c.to.target:
		return 2
	}
	return 3
}

// fits reports whether a node can be admitted. One that has neither state can be: that makes
// nothing worse.
func (c *candidate) fits(l *limits, moving int) bool {
	t, retries := c.to, c.retries(c.to.target)
	switch {
	case t.used >= l.room && !retries:
		return false
	case c.Moving:
		return true
	case !retries && !c.broken() && t.failures+t.damaged > t.limit, moving >= l.unavailable:
		return false
	}
	for i := range l.topology {
		z := domainOf(&l.topology[i], c.Labels)
		if t.zones[z] >= atOnce(&l.topology[i], t.sizes[z]) {
			return false
		}
	}
	return true
}

// domain is the nodes with the same value of the label of a topology limit.
type domain struct{ key, value string }

func domainOf(l *v1beta1.TopologyLimit, labels map[string]string) domain {
	return domain{l.TopologyKey, labels[l.TopologyKey]}
}

// atOnce returns how many of so many nodes of a domain may be switched at once.
func atOnce(l *v1beta1.TopologyLimit, nodes int) int {
	return max(1, Scaled(&l.MaxUnavailable, nodes, false))
}

// Ordered sorts nodes in the order in which a plan switches them.
func Ordered(nodes []*Node, order v1beta1.NodeOrder) {
	slices.SortFunc(nodes, func(a, b *Node) int { return before(a, b, order) })
}

func before(a, b *Node, order v1beta1.NodeOrder) int {
	if order.By == v1beta1.OrderByLabel {
		return cmp.Or(byLabel(a, b, order.LabelKey), cmp.Compare(a.Name, b.Name))
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

// unlimited is more than the number of nodes.
const unlimited = 1 << 30

// watchedFor is how long a node without a plan is watched after its switch.
const watchedFor = 10 * time.Minute

func soonAfter(n *Node) bool { return n.Trouble.Since.Before(n.Ended.Add(watchedFor)) }

// Unplanned are the nodes without a plan. They follow an implicit one: its limits are those of the
// controller, and each node has a target of its own.
type Unplanned struct {
	Nodes []*Node
	// MaxUnavailable and MaxFailures are a number, or a percentage: the first of all of these
	// nodes, the second of those with the same target.
	MaxUnavailable, MaxFailures intstr.IntOrString
}

// Result is what becomes of the nodes without a plan.
type Result struct {
	// Admitted are the targets of the nodes that may begin or continue.
	Admitted map[string]string
	// Stopped are the failed nodes of targets with too many of them.
	Stopped map[string][]v1beta1.PlanNode
	// Moving is how many nodes are being switched, Limit how many may be.
	Moving, Limit int
	// Wake is when to decide again. Zero means never.
	Wake time.Time
}

// Decide admits nodes.
func (u *Unplanned) Decide() Result {
	out := Result{Stopped: map[string][]v1beta1.PlanNode{}}
	byTarget, nodes := map[string][]*Node{}, 0
	for _, n := range u.Nodes {
		if target, keeps := n.target(); !keeps {
			byTarget[target] = append(byTarget[target], n)
			nodes++
		}
	}
	var rollouts []*tally
	for target, of := range byTarget {
		t := count(of, target, time.Time{}, nil, false, soonAfter)
		t.limit = Scaled(&u.MaxFailures, t.eligible(), false)
		if t.failures > t.limit {
			out.Stopped[target] = listed(t.failed)
		}
		out.Wake = Earliest(out.Wake, t.wake)
		rollouts = append(rollouts, t)
	}
	out.Limit = max(1, Scaled(&u.MaxUnavailable, nodes, false))
	out.Admitted = (&limits{unavailable: out.Limit, room: unlimited}).admit(rollouts...)
	for _, t := range rollouts {
		out.Moving += t.moving
	}
	return out
}

// Earliest returns the earlier of two times. Zero means never.
func Earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
