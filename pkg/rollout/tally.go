package rollout

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/text"
)

const (
	// mostListed limits the nodes that a status lists.
	mostListed = 20
	// mostMessage limits what it says of each.
	mostMessage = 512
)

// tally counts the nodes of a rollout to a target.
type tally struct {
	target string
	// since is when the rollout began. Nodes that joined later with the target do not count for
	// its steps.
	since time.Time
	// refusals: nodes that refuse the profile before anything changes count as failures.
	refusals bool
	// bad reports whether the trouble of an updated node counts.
	bad func(*Node) bool

	counts v1beta1.PlanNodeCounts
	failed []v1beta1.PlanNode
	aside  []v1beta1.PlanNode
	// failures is how many nodes failed with the target, damaged how many others have neither
	// their old nor their new state since an earlier rollout.
	failures, damaged int
	// limit is how many nodes may fail, accepted ones included.
	limit int
	// moving is how many nodes are switching, zones how many of each zone. sizes are the
	// numbers of their nodes.
	moving       int
	topology     []v1beta1.TopologyLimit
	zones, sizes map[domain]int
	// used is how many nodes have used the room of the step. arriving is how many of them
	// are switching.
	used, arriving int
	// candidates are the nodes that can be admitted, those that were and have not begun included.
	candidates []*Node
	took       time.Duration
	arrived    int
	wake       time.Time
}

// eligible returns how many nodes can get the target.
func (t *tally) eligible() int { return int(t.counts.Selected - t.counts.Overridden) }

func (t *tally) add(n *Node) {
	t.counts.Selected++
	if !n.Wake.IsZero() && (t.wake.IsZero() || n.Wake.Before(t.wake)) {
		t.wake = n.Wake
	}
	if n.Overridden {
		t.counts.Overridden++
		return
	}
	t.inZones(n, t.sizes)
	adopted := n.Desired == t.target
	switch {
	case n.Joining:
		t.join(n, adopted)
	case adopted && n.settled(t.target):
		if t.since.IsZero() || !n.Created.After(t.since) || !n.First {
			t.used++
		}
		if n.Trouble != nil && t.bad(n) {
			t.fails(n, true, n.Trouble.Reason, n.Trouble.Message)
			return
		}
		t.counts.Updated++
		if n.Ended.After(n.Started) && !n.Started.Before(t.since) {
			t.took += n.Ended.Sub(n.Started)
			t.arrived++
		}
	case adopted && n.To == t.target && n.Failed:
		t.used++
		t.fails(n, n.Changed || t.refusals, n.Reason, n.Message)
		t.retry(n)
	case n.Moving:
		t.counts.Switching++
		t.move(n)
		if !adopted { // It goes elsewhere first.
			t.candidates = append(t.candidates, n)
			return
		}
		t.used++
		t.arriving++
	case n.Kept, n.Aside && n.Reason == names.ReasonOtherSystem, adopted && n.Aside && n.State == v1beta1.Failed:
		t.setAside(n, n.Reason, n.Message)
	case n.broken():
		if n.Damaged {
			t.damaged++
		}
		t.counts.Waiting++
		t.candidates = append(t.candidates, n)
	case n.setAside(t.target):
		t.setAside(n, n.Reason, n.Message)
		t.candidates = append(t.candidates, n)
	case !n.Ready:
		if n.Damaged && n.Reported != n.Applied {
			t.damaged++
		}
		t.counts.NotReady++
	default:
		t.counts.Waiting++
		t.candidates = append(t.candidates, n)
	}
}

// join counts a node that joins. Nobody uses its GPUs, so it needs no place and no permission.
func (t *tally) join(n *Node, adopted bool) {
	switch {
	case adopted && n.To == t.target && n.Failed:
		t.fails(n, false, n.Reason, n.Message)
	case n.Moving:
		t.counts.Switching++
	case !n.Ready:
		t.counts.NotReady++
	default:
		t.counts.Waiting++
	}
}

// move counts a node against the limits.
func (t *tally) move(n *Node) {
	t.moving++
	t.inZones(n, t.zones)
}

func (t *tally) inZones(n *Node, counts map[domain]int) {
	for i := range t.topology {
		counts[domainOf(&t.topology[i], n.Labels)]++
	}
}

// retry counts a failed node that tries again: that needs a place, as the first attempt did.
func (t *tally) retry(n *Node) {
	switch {
	case n.Moving:
		t.arriving++
		t.move(n)
	case n.starting():
		t.candidates = append(t.candidates, n)
	}
}

// setAside reports whether the last attempt of a node to reach a target changed nothing.
func (n *Node) setAside(target string) bool {
	return n.Aside && n.Desired == target && !n.broken()
}

func (t *tally) fails(n *Node, counts bool, reason, message string) {
	t.counts.Failed++
	if counts {
		t.failures++
	}
	t.failed = append(t.failed, entry(n, reason, message))
}

func (t *tally) setAside(n *Node, reason, message string) {
	t.counts.SetAside++
	t.aside = append(t.aside, entry(n, reason, message))
}

func entry(n *Node, reason, message string) v1beta1.PlanNode {
	return v1beta1.PlanNode{NodeName: n.Name, Reason: reason, Message: text.Cut(message, mostMessage)}
}

// listed returns the first of some nodes by name.
func listed(all []v1beta1.PlanNode) []v1beta1.PlanNode {
	if len(all) == 0 {
		return nil
	}
	slices.SortFunc(all, func(a, b v1beta1.PlanNode) int { return strings.Compare(a.NodeName, b.NodeName) })
	return all[:min(len(all), mostListed)]
}

func count(nodes []*Node, target string, since time.Time, topology []v1beta1.TopologyLimit, refusals bool, bad func(*Node) bool) *tally {
	t := &tally{target: target, since: since, refusals: refusals, bad: bad, topology: topology, zones: map[domain]int{}, sizes: map[domain]int{}}
	for _, n := range nodes {
		t.add(n)
	}
	return t
}

// Scaled returns a number, or a percentage of so many nodes.
func Scaled(of *intstr.IntOrString, nodes int, up bool) int {
	n, err := intstr.GetScaledValueFromIntOrPercent(of, nodes, up)
	if err != nil {
		return 0
	}
	return n
}

// ParseLimit reads a limit of nodes: a number from least on, or a percentage up to 100%.
func ParseLimit(limit string, least int) (intstr.IntOrString, error) {
	v := intstr.Parse(limit)
	n, err := intstr.GetScaledValueFromIntOrPercent(&v, 100, false)
	if err != nil || n < least || v.Type == intstr.String && n > 100 {
		return v, fmt.Errorf("is %q: give %d or more, or %d%% to 100%%", limit, least, least)
	}
	return v, nil
}
