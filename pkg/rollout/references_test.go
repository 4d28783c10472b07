package rollout_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/rollout"
)

// newest refers to the newest revision.
func (f *fleet) newest() v1beta1.RevisionReference { return f.plan.Status.History[0].RevisionReference }

// A reference means a revision by its number and its hash. A plan that was created again has other
// revisions with the same numbers.
func TestReferences(t *testing.T) {
	waits := newFleet(t, 3, v1beta1.RolloutStrategy{Steps: []v1beta1.RolloutStep{{Nodes: *intOrPercent("1"), Approval: true}}}).decide().arrive().decide()
	require.Equal(t, names.ReasonWaitsForApproval, waits.progressing())
	stopped := newFleet(t, 3, v1beta1.RolloutStrategy{}).decide().fail("node-00").decide()
	require.Equal(t, names.ReasonTooManyFailures, stopped.progressing())
	rejects := newFleet(t, 3, v1beta1.RolloutStrategy{}).decide()
	for _, c := range []struct {
		name      string
		reference v1beta1.RevisionReference
		means     bool
	}{
		{"another number", v1beta1.RevisionReference{Revision: 2, RevisionHash: "1"}, false},
		{"another profile", v1beta1.RevisionReference{Revision: 1, RevisionHash: "0"}, false},
		{"the revision", v1beta1.RevisionReference{Revision: 1, RevisionHash: "1"}, true},
	} {
		waits.plan.Spec.Approved = &v1beta1.StepApproval{RevisionReference: c.reference, Step: 1}
		assert.Equal(t, c.means, len(waits.decide().admitted()) > 0, "approved: %s", c.name)
		stopped.plan.Spec.Accepted = &v1beta1.AcceptedFailures{RevisionReference: c.reference, FailedNodeCount: 1}
		assert.Equal(t, c.means, stopped.decide().plan.Status.Stopped == nil, "accepted: %s", c.name)
		rejects.plan.Spec.Rejected = &v1beta1.RejectedRevision{RevisionReference: c.reference}
		assert.Equal(t, c.means, rejects.decide().plan.Status.TargetRevision == nil, "rejected: %s", c.name)
	}
}

// A profile that is as it was before is another revision.
func TestAnApprovalIsNotForTheSameProfileAgain(t *testing.T) {
	f := newFleet(t, 3, v1beta1.RolloutStrategy{Steps: []v1beta1.RolloutStep{{Nodes: *intOrPercent("1"), Approval: true}}}).decide().arrive().decide()
	f.plan.Spec.Approved = &v1beta1.StepApproval{RevisionReference: f.newest(), Step: 1}
	f.decide().arrive().decide().arrive().decide()
	require.Equal(t, names.ReasonComplete, f.progressing())
	f.profile = version("2")
	f.decide().arrive().decide()
	f.profile = version("1")
	f.decide()
	assert.Equal(t, v1beta1.RevisionReference{Revision: 3, RevisionHash: "1"}, f.newest())
	assert.Equal(t, names.ReasonWaitsForApproval, f.progressing())
	assert.Empty(t, f.admitted())
}

func TestUndoByHand(t *testing.T) {
	f := newFleet(t, 2, v1beta1.RolloutStrategy{MaxUnavailable: intOrPercent("2"), Windows: []v1beta1.Window{{Start: "12:00", End: "13:00"}}}).decide()
	f.plan.Spec.Rejected = &v1beta1.RejectedRevision{RevisionReference: f.newest()}
	f.decide()
	assert.Nil(t, f.plan.Status.TargetRevision, "there is no other")
	assert.Equal(t, names.ReasonUndone, f.progressing())
	assert.False(t, rollout.Gives(f.plan))
	assert.Nil(t, rollout.Assign(f.plan, false))
	for _, hash := range []string{"2", "3"} {
		f.profile = version(hash)
		f.decide().arrive().decide()
		require.Equal(t, names.ReasonComplete, f.progressing(), "what was undone is not the newest revision any more")
	}
	f.profile = version("4")
	f.decide().arrive()
	f.plan.Spec.Rejected = &v1beta1.RejectedRevision{RevisionReference: f.newest()}
	f.after(2 * time.Hour)
	assert.Equal(t, ptr.To[int64](3), f.plan.Status.TargetRevision, "the last complete one, without windows")
	assert.Len(t, f.admitted(), 2)
	f.plan.Spec.Rejected.Fallback = &v1beta1.RevisionReference{Revision: 2, RevisionHash: "2"}
	assert.Equal(t, ptr.To[int64](2), f.decide().plan.Status.TargetRevision)
	f.plan.Spec.Rejected.Fallback = nil
	assert.Equal(t, ptr.To[int64](3), f.decide().plan.Status.TargetRevision)
}

// A plan that does not know where to go back to goes nowhere.
func TestUndoToARevisionThatIsNotInTheHistory(t *testing.T) {
	for name, fallback := range map[string]v1beta1.RevisionReference{
		"another number": {Revision: 9, RevisionHash: "1"}, "another profile": {Revision: 1, RevisionHash: "9"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFleet(t, 3, v1beta1.RolloutStrategy{OnFailure: v1beta1.OnFailureUndo}).decide().arrive().decide().arrive().decide().arrive().decide()
			require.Equal(t, names.ReasonComplete, f.progressing())
			f.profile = version("2")
			f.decide().arrive()
			f.plan.Spec.Rejected = &v1beta1.RejectedRevision{RevisionReference: f.newest(), Fallback: &fallback}
			f.decide()
			assert.Equal(t, names.ReasonFallbackNotFound, f.progressing())
			assert.Equal(t, ptr.To[int64](2), f.plan.Status.TargetRevision)
			assert.Empty(t, f.admitted())
			assert.False(t, f.ready())
			assert.Equal(t, "1", rollout.Assign(f.plan, true).Hash, "a node that joins does not get what is rejected")
			f.plan.Spec.Rejected.Fallback = nil
			f.decide()
			assert.Equal(t, names.ReasonUndoing, f.progressing())
			assert.Equal(t, []string{"node-00"}, f.admitted())
		})
	}
}
