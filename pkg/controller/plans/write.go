package plans

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/rollout"
	"github.com/tranche-dev/tranche/pkg/text"
)

// countsInterval is the shortest time between writes of counts.
const countsInterval = 3 * time.Second

// write writes the status of a plan if it changed. Nothing that it decides begins before.
// Changes that only inform people can be delayed.
func (d *Decider) write(ctx context.Context, p *plan, decision *rollout.Decision, now time.Time) error {
	if equality.Semantic.DeepEqual(p.Status, decision.Status) {
		return nil
	}
	if d.written == nil {
		d.written = map[string]time.Time{}
	}
	if at := d.written[p.Name].Add(countsInterval); informsOnly(&p.Status, &decision.Status) && now.Before(at) {
		decision.Wake = rollout.Earliest(decision.Wake, at)
		return nil
	}
	next := p.DeepCopy()
	next.Status = decision.Status
	err := d.Client.Status().Patch(ctx, next, client.MergeFromWithOptions(p.PartitionPlan, client.MergeFromWithOptimisticLock{}))
	if err != nil {
		// Somebody changed it, or it was written in spite of the error.
		d.plans.reread(ctx, d.Reader, p.PartitionPlan)
		if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
			return fmt.Errorf("%w: PartitionPlan %s: %w", ErrOutdated, p.Name, err)
		}
		return fmt.Errorf("write the status of PartitionPlan %s: %w", p.Name, err)
	}
	d.written[p.Name] = now
	d.plans[p.Name] = next
	if rollout.Gives(next) != rollout.Gives(p.PartitionPlan) {
		d.Again() // It selects other nodes now.
	}
	p.PartitionPlan = next
	about := &v1beta1.PartitionPlan{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1beta1.GroupVersion.String(), Kind: v1beta1.PlanKind},
		ObjectMeta: metav1.ObjectMeta{Name: p.Name, UID: p.UID},
	}
	for _, e := range decision.Events {
		d.Events.Eventf(about, nil, e.Type, e.Reason, "Rollout", "%s", text.Note(e.Note))
	}
	return nil
}

// informsOnly reports whether two statuses differ only in what informs people.
func informsOnly(a, b *v1beta1.PartitionPlanStatus) bool {
	a, b = a.DeepCopy(), b.DeepCopy()
	for _, s := range []*v1beta1.PartitionPlanStatus{a, b} {
		s.NodeCounts, s.FailedNodes, s.SetAsideNodes = v1beta1.PlanNodeCounts{}, nil, nil
		s.EstimatedCompletionTime, s.MeanSwitchDuration = nil, nil
		for i := range s.Conditions {
			s.Conditions[i].Message = ""
		}
	}
	return equality.Semantic.DeepEqual(a, b)
}
