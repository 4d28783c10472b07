package waiting

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tranche-dev/tranche/api/names"
	poddemand "github.com/tranche-dev/tranche/pkg/why/demand"
	"github.com/tranche-dev/tranche/pkg/why/fit"
)

// demand is what pods ask for, with what the nodes have of it.
type demand struct {
	*poddemand.Demand
	key string
	// certain: only this driver can serve it.
	certain bool
	// namespace is that of the pod that asked for it first.
	namespace string
	pods      map[types.NamespacedName]bool
	// checked: devices of this driver can serve it.
	checked bool
	// room is the node where room was found last, and roomSince since when there is some, zero if there is none.
	room      *node
	roomSince time.Time
	// reason is why its pods wait, as it was when all nodes had been judged the last time: empty if there is
	// room, or if it is not known. nodes counts them.
	reason string
	nodes  fit.Tally
	// outcomes are different outcomes of nodes: equal nodes share theirs.
	outcomes []*fit.Outcome
	// spent is what judging took for so many nodes. retryAt is when it is tried again after that took too long,
	// otherwise zero, and backoff how long that was.
	spent   time.Duration
	judged  int
	retryAt time.Time
	backoff time.Duration
}

// budget is how long judging may take: for a node, and for all of them.
type budget struct{ node, first, average time.Duration }

// defaultBudget is a multiple of what usual demands take, which is up to ten milliseconds for a node with eight
// GPUs.
var defaultBudget = budget{node: time.Second, first: 5 * time.Second, average: 50 * time.Millisecond}

const firstBackoff, longestBackoff = time.Minute, time.Hour

// join has a pod share a demand. If there are too many, the pod is left out.
func (e *Explainer) join(key types.NamespacedName, p *pod, of *poddemand.Demand, id string) {
	if p.demand != nil && p.demand.key == id {
		return
	}
	e.leave(key, p)
	d := e.demands[id]
	if d == nil {
		if p.leftOut = !e.mayAdd(key.Namespace); p.leftOut {
			return
		}
		d = &demand{Demand: of, key: id, namespace: key.Namespace, pods: map[types.NamespacedName]bool{}}
		e.demands[id] = d
	}
	p.demand, d.pods[key] = d, true
}

// mayAdd reports whether a namespace may have one more demand.
func (e *Explainer) mayAdd(namespace string) bool {
	n := 0
	for _, d := range e.demands {
		if d.namespace == namespace {
			n++
		}
	}
	return len(e.demands) < e.limits.demands && n < e.limits.perNamespace
}

// leave takes a pod out of its demand. The last pod ends the demand.
func (e *Explainer) leave(key types.NamespacedName, p *pod) {
	d := p.demand
	p.leftOut = false
	if p.demand = nil; d == nil {
		return
	}
	if delete(d.pods, key); len(d.pods) == 0 {
		delete(e.demands, d.key)
		e.reset(d)
	}
}

// reset forgets the verdicts about a demand.
func (e *Explainer) reset(d *demand) {
	for _, n := range e.nodes {
		delete(n.verdicts, d)
	}
	d.room, d.roomSince, d.reason, d.nodes, d.outcomes, d.spent, d.judged = nil, time.Time{}, "", fit.Tally{}, nil, 0, 0
}

// maxOutcomes is how many outcomes of a demand are shared.
const maxOutcomes = 50

// shared returns an outcome that is equal to that of another node, or the same.
func (d *demand) shared(o fit.Outcome) *fit.Outcome {
	if i := slices.IndexFunc(d.outcomes, func(have *fit.Outcome) bool { return have.Equal(o) }); i >= 0 {
		return d.outcomes[i]
	}
	if d.outcomes = append(d.outcomes, &o); len(d.outcomes) > maxOutcomes {
		d.outcomes = d.outcomes[1:]
	}
	return &o
}

// took notes how long judging took for a node. If that is too long, the demand is not judged for a while,
// which doubles each time, and its pods get no event.
func (e *Explainer) took(d *demand, last time.Duration) {
	d.spent += last
	d.judged++
	if last < e.budget.node && d.spent <= e.budget.first+time.Duration(d.judged)*e.budget.average {
		return
	}
	e.reset(d)
	d.backoff = min(max(2*d.backoff, firstBackoff), longestBackoff)
	d.retryAt = e.Clock.Now().Add(d.backoff)
}

// hasRoom reports whether a node has room for a demand.
func (d *demand) hasRoom() bool {
	if d.room == nil {
		return false
	}
	v, judged := d.room.verdicts[d]
	return judged && v.Verdict == fit.Fits
}

// settle sets the answer of a demand if all nodes are judged, or if there is room.
func (e *Explainer) settle(d *demand) {
	if d.hasRoom() {
		d.reason = ""
		if d.roomSince.IsZero() {
			d.roomSince = e.Clock.Now()
		}
		return
	}
	d.roomSince = time.Time{}
	outcomes := map[*fit.Outcome]int{}
	for _, n := range e.nodes {
		v, judged := n.verdicts[d]
		if !judged {
			return
		}
		outcomes[v]++
	}
	d.nodes = fit.Tally{}
	for o, nodes := range outcomes {
		d.nodes.Add(*o, nodes)
	}
	d.reason = d.nodes.Event(d.certain)
}

// numbers count the pods by the reason of their event, and those that get none by the reason for that.
func (e *Explainer) numbers() (byReason map[string]int, unexplained map[string]int) {
	byReason, unexplained = map[string]int{}, map[string]int{names.UnexplainedTooMany: 0, names.UnexplainedTooLong: 0}
	for _, p := range e.pods {
		switch d := p.demand; {
		case p.leftOut:
			unexplained[names.UnexplainedTooMany]++
		case d != nil && !d.retryAt.IsZero():
			unexplained[names.UnexplainedTooLong]++
		case d != nil && d.reason != "":
			byReason[d.reason]++
		case p.reason != "":
			byReason[p.reason]++
		}
	}
	return byReason, unexplained
}
