package overview

import (
	"fmt"
	"maps"
	"slices"
	"time"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/cluster"
)

// State is the state of a node. A node for which several hold is in the last of them.
type State string

// The states.
const (
	// Ready: nothing is known against the node.
	Ready State = "Ready"
	// Pending: it waits for another profile, or for another version of its profile.
	Pending State = "Pending"
	// Cordoned: the node takes no new pods.
	Cordoned State = "Cordoned"
	// Switching: its profile is being changed.
	Switching State = "Switching"
	// UnexplainedTaint: GPUs have a taint that no switch and no driver upgrade explains.
	UnexplainedTaint State = "UnexplainedTaint"
	// ProfileNotApplied: its profile cannot be applied.
	ProfileNotApplied State = "ProfileNotApplied"
	// Overdue: a switch has passed the deadline of its state.
	Overdue State = "Overdue"
	// SwitchFailed: its profile could not be changed.
	SwitchFailed State = "SwitchFailed"
	// Incomplete: GPUs are not published in full, so that the scheduler ignores the node's GPUs.
	Incomplete State = "Incomplete"
	// Unhealthy: something is wrong with GPUs.
	Unhealthy State = "Unhealthy"
	// NotReady: the kubelet says that the node is not ready, or says nothing.
	NotReady State = names.ReasonNotReady
	// Gone: the node publishes none of its GPUs, or not those whose devices claims hold.
	Gone State = "Gone"
)

// order has the states from the best to the worst.
var order = []State{Ready, Pending, Cordoned, Switching, UnexplainedTaint, ProfileNotApplied, Overdue, SwitchFailed, Incomplete, Unhealthy, NotReady, Gone}

// Trouble reports whether somebody should look at a node in this state.
func (s State) Trouble() bool { return slices.Index(order, s) > slices.Index(order, Switching) }

// Trouble is a node in a state of trouble.
type Trouble struct {
	Node  string `json:"nodeName"`
	State State  `json:"state"`
	// Reasons say what is wrong, of all states of trouble that hold. They may be missing.
	Reasons []string `json:"messages,omitempty"`
}

// StateOf returns the state of a node, and what speaks for it if it is in trouble.
func StateOf(n *cluster.Node, now time.Time) (State, []string) {
	worst, reasons := Ready, []string(nil)
	is := func(s State, reason string) {
		if slices.Index(order, s) > slices.Index(order, worst) {
			worst = s
		}
		if reason != "" && s.Trouble() {
			reasons = append(reasons, reason)
		}
	}
	if n.NotReady() {
		is(NotReady, "")
	}
	if n.Cordoned {
		is(Cordoned, "")
	}
	for i := range n.GPUs {
		stateOfGPU(&n.GPUs[i], is)
	}
	if n.Profile != nil {
		stateOfProfile(n.Profile, now, is)
	}
	return worst, reasons
}

func stateOfGPU(g *cluster.GPU, is func(State, string)) {
	if g.Problem != "" {
		is(Unhealthy, "GPU "+g.Name+": "+g.Problem)
	}
	if g.MissingSlices > 0 {
		is(Incomplete, "GPU "+g.Name+" "+notInFull(g))
	}
	for _, t := range g.Taints {
		if t.Effect == resourceapi.DeviceTaintEffectNone {
			continue
		}
		what := fmt.Sprintf("GPU %s: %d of %d devices have the taint %s", g.Name, t.Devices, t.Of, t)
		switch t.Key {
		case names.TaintSwitching, names.TaintDriverUpgrade:
			is(Switching, "")
		case names.TaintNotOffered: // Claims of before a change of the profile.
		case names.TaintReserved: // For minutes, while pods are moved.
		case names.TaintUnhealthy:
			is(Unhealthy, what)
		default:
			is(UnexplainedTaint, what)
		}
	}
}

func stateOfProfile(p *cluster.Progress, now time.Time, is func(State, string)) {
	switch {
	case p.State == v1beta1.Failed:
		is(SwitchFailed, p.Failure(now))
	case p.State == v1beta1.RollingBack:
		is(SwitchFailed, p.Doings(now))
	case p.Switching() && !p.Switch.DeadlineTime.IsZero() && p.Switch.DeadlineTime.Time.Before(now):
		is(Overdue, p.Doings(now))
	case p.State == v1beta1.Waiting:
		is(Pending, "")
	case p.Switching():
		is(Switching, "")
	case p.Conflict != "":
		is(ProfileNotApplied, cluster.Sentence(p.Conflict))
	case p.Pending != "":
		is(Pending, "")
	default:
		for _, s := range p.Sentences(now) {
			if p.Unpublished {
				is(Gone, s.Text)
			} else if s.Warning && p.Kept != "" {
				is(ProfileNotApplied, s.Text)
			}
		}
	}
}

// lost returns the nodes whose GPUs are held and not published.
func lost(s *cluster.Summary) []Trouble {
	count := map[string]int{}
	for _, h := range s.Lost {
		count[h.Pool]++ // a pool has the name of its node
	}
	var out []Trouble
	for _, node := range slices.Sorted(maps.Keys(count)) {
		reason := fmt.Sprintf("claims hold %d devices of GPUs that the node does not publish", count[node])
		if count[node] == 1 {
			reason = "a claim holds a device of a GPU that the node does not publish"
		}
		out = append(out, Trouble{Node: node, State: Gone, Reasons: []string{reason}})
	}
	return out
}
