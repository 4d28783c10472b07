package rollout

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/lists"
)

// keptRevisions is the length of the history of a plan.
const keptRevisions = 6

func (e *evaluation) target() *v1beta1.PlanRevision { return Target(&e.Status) }

// Target returns the revision that the nodes of a plan get, or nil if there is none.
func Target(s *v1beta1.PartitionPlanStatus) *v1beta1.PlanRevision {
	return Revision(s, ptr.Deref(s.TargetRevision, 0))
}

// Stopped reports whether failures with its target stop a plan.
func Stopped(s *v1beta1.PartitionPlanStatus) bool {
	return s.Stopped != nil && s.TargetRevision != nil && s.Stopped.Revision == *s.TargetRevision
}

// Revision finds a revision in the history of a plan, or nil if it is not there.
func Revision(s *v1beta1.PartitionPlanStatus, number int64) *v1beta1.PlanRevision {
	return lists.Find(s.History, func(p *v1beta1.PlanRevision) bool { return p.Revision == number })
}

// NewestHash returns the hash of the newest revision of a plan, if there is one. The profile may have the
// same content.
func NewestHash(plan *v1beta1.PartitionPlan) []string {
	if len(plan.Status.History) == 0 {
		return nil
	}
	return []string{plan.Status.History[0].RevisionHash}
}

// revise makes a revision of a profile that is new or was changed, and follows spec.rejected.
func (e *evaluation) revise() {
	s := &e.Status
	if p := e.Profile; p != nil && (len(s.History) == 0 || s.History[0].RevisionHash != p.Hash) {
		s.Revision++
		s.History = append([]v1beta1.PlanRevision{{
			RevisionReference: v1beta1.RevisionReference{Revision: s.Revision, RevisionHash: p.Hash},
			ProfileName:       p.ProfileName, RulesVersion: p.RulesVersion, Rules: p.Rules, CreationTime: metav1.NewTime(e.Now),
		}}, s.History...)
		e.forget()
		s.Stopped = nil
		e.begin(&s.History[0])
		e.event(corev1.EventTypeNormal, names.EventPlanRevision, "Profile %s is revision %d", p.ProfileName, s.Revision)
	}
	if rejected(&e.Spec, &e.Status) {
		e.undo()
	}
}

// rejected reports whether spec.rejected rejects the newest revision of a plan.
func rejected(spec *v1beta1.PartitionPlanSpec, s *v1beta1.PartitionPlanStatus) bool {
	u := spec.Rejected
	return u != nil && u.Means(Revision(s, s.Revision))
}

func (e *evaluation) undo() {
	to := LastComplete(&e.Status)
	if f := e.Spec.Rejected.Fallback; f != nil {
		to = Revision(&e.Status, f.Revision)
		if e.lost = !f.Means(to); e.lost {
			return
		}
	}
	if to != e.target() {
		e.goBack(to)
	}
}

// forget drops the oldest revisions. The one that an undo would go back to stays.
func (e *evaluation) forget() {
	s := &e.Status
	if len(s.History) <= keptRevisions {
		return
	}
	drop := len(s.History) - 1
	if &s.History[drop] == LastComplete(s) {
		drop--
	}
	s.History = append(s.History[:drop], s.History[drop+1:]...)
}

// LastComplete returns the newest earlier revision that was complete and not rejected, or nil.
func LastComplete(s *v1beta1.PartitionPlanStatus) *v1beta1.PlanRevision {
	return lists.Find(s.History, func(r *v1beta1.PlanRevision) bool {
		return r.Revision < s.Revision && r.CompletionTime != nil && !r.Rejected
	})
}

// goBack returns the nodes from the newest revision to an earlier one. Without one, the plan gives them
// no profile.
func (e *evaluation) goBack(to *v1beta1.PlanRevision) {
	s := &e.Status
	s.History[0].Rejected = true
	e.begin(to)
	if to == nil {
		e.event(corev1.EventTypeWarning, names.EventPlanUndo, "Revision %d is undone, and none before it was complete: nodes get what they would have without the plan", s.Revision)
		return
	}
	e.event(corev1.EventTypeWarning, names.EventPlanUndo, "Nodes go from revision %d to revision %d", s.Revision, to.Revision)
}

// begin begins the rollout of a revision, or of none.
func (e *evaluation) begin(target *v1beta1.PlanRevision) {
	now := metav1.NewTime(e.Now)
	s := &e.Status
	s.TargetRevision, s.CurrentStep, s.StepReachedTime, s.StartTime = nil, 1, nil, &now
	if target != nil {
		s.TargetRevision = ptr.To(target.Revision)
	}
	s.EstimatedCompletionTime, s.MeanSwitchDuration = nil, nil
}

// Assign returns the version of the profile that a plan gives to its nodes; nil: it gives none
// yet. A node that joins gets the last complete version until the newest one has reached the
// last step, and if the plan has stopped; and never one that is rejected, even if the plan cannot go back.
func Assign(plan *v1beta1.PartitionPlan, joining bool) *v1beta1.ProfileSnapshot {
	s := &plan.Status
	r := Target(s)
	if joining && r != nil && r.Revision == s.Revision {
		old := LastComplete(s)
		if rejected(&plan.Spec, s) || old != nil && r.CompletionTime == nil && (Stopped(s) || s.CurrentStep < s.StepCount) {
			r = old
		}
	}
	if r == nil {
		return nil
	}
	return &v1beta1.ProfileSnapshot{
		ProfileName: r.ProfileName, Source: v1beta1.FromPlan, PlanName: plan.Name, Hash: r.RevisionHash, RulesVersion: r.RulesVersion, Rules: r.Rules,
	}
}

// Gives reports whether a plan gives its nodes anything, or keeps them as they are. Otherwise they
// get what they would have without it.
func Gives(plan *v1beta1.PartitionPlan) bool {
	return plan.Status.Revision == 0 || plan.Status.TargetRevision != nil
}
