package gpunodes

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/api/v1beta1"
)

// Plan is a PartitionPlan to which things are added.
type Plan struct{ v1beta1.PartitionPlan }

// NewPlan is a plan with revisions of a profile, of which all but the newest are complete. The
// controller has seen it.
func NewPlan(name, profile string, revisions int64) *Plan {
	p := &Plan{}
	p.Name, p.Generation = name, 1
	p.Spec.ProfileName, p.Spec.NodeSelector = profile, &v1beta1.NodeSelector{}
	s := &p.Status
	s.ObservedGeneration, s.Revision, s.TargetRevision, s.CurrentStep, s.StepCount = 1, revisions, &revisions, 1, 1
	for r := revisions; r > 0; r-- {
		reference := v1beta1.RevisionReference{Revision: r, RevisionHash: fmt.Sprint("hash-", r)}
		h := v1beta1.PlanRevision{RevisionReference: reference, ProfileName: profile, CreationTime: metav1.NewTime(Now)}
		if r < revisions {
			done := metav1.NewTime(Now)
			h.CompletionTime = &done
		}
		s.History = append(s.History, h)
	}
	return p
}

// Counts sets how many nodes are how far.
func (p *Plan) Counts(n v1beta1.PlanNodeCounts) *Plan {
	p.Status.NodeCounts = n
	return p
}

// Says sets a condition.
func (p *Plan) Says(kind string, status bool, reason, message string) *Plan {
	c := metav1.Condition{Type: kind, Status: metav1.ConditionFalse, Reason: reason, Message: message, LastTransitionTime: metav1.NewTime(Now)}
	if status {
		c.Status = metav1.ConditionTrue
	}
	meta.SetStatusCondition(&p.Status.Conditions, c)
	return p
}
