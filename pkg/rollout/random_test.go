package rollout_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/rollout"
	"github.com/tranche-dev/tranche/test/short"
)

// storm is a fleet whose nodes do what reconciler and plugin do, and fail at random.
type storm struct {
	*fleet
	rand    *rand.Rand
	edits   int
	damaged map[string]bool
}

// outside is how many nodes have neither their old nor their new state.
func (s *storm) outside() (n int) {
	for _, node := range s.nodes {
		if node.Moving || node.Reported != node.Applied {
			n++
		}
	}
	return n
}

// wanted is what a node is to have.
func (s *storm) wanted() string {
	if a := rollout.Assign(s.plan, false); a != nil {
		return a.Hash
	}
	return "old"
}

// step is one reconciliation of a node, or something that its plugin does.
func (s *storm) step(n *rollout.Node) {
	wanted := s.wanted()
	if n.Desired != wanted {
		if n.Admitted == wanted || n.Applied == wanted {
			n.Desired = wanted
		} else {
			n.Desired = n.Applied
		}
	}
	rest := func() { n.State, n.To, n.Failed, n.Aside, n.Moving = v1beta1.Idle, "", false, false, false }
	switch {
	case n.Moving:
		switch s.rand.IntN(6) {
		case 0: // It takes longer.
		case 1: // rolled back
			n.Moving, n.State, n.Failed, n.Aside, n.Reason, n.Reported = false, v1beta1.Failed, true, false, names.ReasonHardwareFailed, n.Applied
			s.damaged[n.Name] = false
		case 2: // not even that
			n.Moving, n.State, n.Failed, n.Aside, n.Reason, n.Reported = false, v1beta1.Failed, true, false, names.ReasonRollbackFailed, "neither"
			s.damaged[n.Name] = true
		case 3:
			if n.Reported == n.Applied {
				n.Moving, n.State, n.Failed, n.Aside, n.Reason = false, v1beta1.Failed, false, true, names.ReasonDrainBlocked
				break
			}
			fallthrough
		default:
			n.Applied, n.Reported = n.To, n.To
			n.Started, n.Ended = s.now, s.now
			s.damaged[n.Name] = false
			rest()
		}
	case n.Applied == n.Desired && n.Reported == n.Applied:
		rest()
	case n.To != n.Desired:
		rest()
		n.To, n.State = n.Desired, v1beta1.Planning
	case n.State == v1beta1.Failed:
		if s.rand.IntN(3) == 0 {
			n.State = v1beta1.Planning // another attempt
		}
	case n.State == v1beta1.Planning || n.State == v1beta1.Waiting:
		n.State = v1beta1.Waiting
		if n.Admitted == n.To || n.To == n.Applied {
			n.State, n.Moving = v1beta1.Draining, true
		}
	}
	n.Damaged = s.damaged[n.Name]
}

// happens is something that people or nodes do.
func (s *storm) happens() {
	spec := &s.plan.Spec
	n := s.nodes[s.rand.IntN(len(s.nodes))]
	target := rollout.Target(&s.plan.Status)
	switch what := s.rand.IntN(9); what {
	case 0:
		spec.Paused = !spec.Paused
	case 1:
		s.edits++
		s.profile = version(fmt.Sprint("v", s.edits))
	case 2:
		n.Ready, n.Admitted = false, "" // its status cannot be written for a while
	case 3:
		n.Ready = !n.Ready
	case 4:
		if all := s.plan.Status.History; len(all) > 1 {
			spec.Rejected = &v1beta1.RejectedRevision{RevisionReference: s.newest(), Fallback: &all[1].RevisionReference}
		}
	case 5:
		if n.Applied == s.wanted() {
			n.Trouble = &rollout.Trouble{Since: s.now, Reason: names.ReasonUnhealthy}
		}
	case 6:
		n.Trouble = nil
	case 7:
		if target != nil {
			spec.Approved = &v1beta1.StepApproval{RevisionReference: target.RevisionReference, Step: s.plan.Status.CurrentStep}
		}
	default:
		return
	}
}

// At most maxFailures + maxUnavailable nodes are ever outside both their old and their new
// state, whatever fails.
func TestNoMoreNodesThanMayAreOutside(t *testing.T) {
	const most, failures = 3, 2
	worst, complete := 0, 0
	for seed := range uint64(short.Of(40, 300)) {
		s := &storm{rand: rand.New(rand.NewPCG(seed, 3)), damaged: map[string]bool{}}
		s.fleet = newFleet(t, 12, v1beta1.RolloutStrategy{
			MaxUnavailable: intOrPercent(fmt.Sprint(most)), MaxFailures: intstr.FromInt32(failures),
			Steps: []v1beta1.RolloutStep{{Nodes: intstr.FromInt32(2)}, {Nodes: intstr.FromString("50%"), Approval: true}},
		})
		if seed%2 == 1 {
			s.plan.Spec.Strategy.OnFailure = v1beta1.OnFailureUndo
		}
		s.story = nil
		for range 400 {
			if s.rand.IntN(12) == 0 {
				s.happens()
			}
			s.decide()
			for range s.rand.IntN(6) {
				s.step(s.nodes[s.rand.IntN(len(s.nodes))])
				require.LessOrEqual(t, s.outside(), most+failures, "seed %d", seed)
			}
			worst = max(worst, s.outside())
			s.now = s.now.Add(time.Second)
		}
		if s.plan.Status.History[0].CompletionTime != nil {
			complete++
		}
	}
	require.Greater(t, worst, most, "nothing went wrong")
	require.Positive(t, complete, "nothing went well")
}

// Whatever went wrong, a plan is complete in the end if nodes work and people say so.
func TestEveryPlanEnds(t *testing.T) {
	for seed := range uint64(40) {
		s := &storm{rand: rand.New(rand.NewPCG(seed, 5)), damaged: map[string]bool{}}
		s.fleet = newFleet(t, 9, v1beta1.RolloutStrategy{MaxUnavailable: intOrPercent("2"), MaxFailures: intstr.FromInt32(1), Steps: steps(3*time.Second, "1", "4")})
		s.story = nil
		for range 100 {
			if s.rand.IntN(8) == 0 {
				s.happens()
			}
			s.decide()
			s.step(s.nodes[s.rand.IntN(len(s.nodes))])
			s.now = s.now.Add(time.Second)
		}
		s.plan.Spec.Paused, s.plan.Spec.Rejected = false, nil
		s.profile = version("last")
		for range 500 {
			s.decide()
			if st := s.plan.Status.Stopped; rollout.Stopped(&s.plan.Status) {
				s.plan.Spec.Accepted = &v1beta1.AcceptedFailures{RevisionReference: s.newest(), FailedNodeCount: st.FailedNodeCount}
			}
			for _, n := range s.nodes {
				n.Ready, n.Trouble = true, nil
				s.step(n)
			}
			s.now = s.now.Add(time.Second)
			if s.progressing() == names.ReasonComplete {
				break
			}
		}
		require.Equal(t, names.ReasonComplete, s.progressing(), "seed %d: %+v", seed, s.plan.Status)
	}
}
