package follow

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"

	"github.com/tranche-dev/tranche/api/v1beta1"
)

// answer does what a switch asks for in its state. It returns nil if there is no answer yet.
func (f *Follower) answer(ctx context.Context, s *v1beta1.Switch, state v1beta1.State) *v1beta1.Task {
	logger := klog.FromContext(ctx).WithValues("switch", s.ID, "state", state)
	start := time.Now()
	allowReboot := s.Policy.Reboot == v1beta1.RebootIfRequired
	var task v1beta1.Task
	switch state {
	case v1beta1.Planning:
		ctx, cancel := context.WithTimeout(ctx, planBudget)
		defer cancel()
		task = f.Profile.Plan(ctx, s.To)
	case v1beta1.Tainted:
		if !f.awaitTaints(ctx) {
			time.AfterFunc(taintSettle, f.Nudge)
			return nil
		}
		if task = f.planTainted(ctx, s); task.Phase == "" {
			return nil
		}
	case v1beta1.Applying:
		task = f.apply(ctx, s, func(ctx context.Context) v1beta1.Task { return f.Profile.Apply(ctx, s.To, allowReboot) })
	case v1beta1.Rebooting:
		done := f.reboot(ctx, s)
		if done == nil {
			return nil
		}
		task = *done
	default:
		task = f.apply(ctx, s, func(ctx context.Context) v1beta1.Task { return f.Profile.RollBack(ctx, s.From, allowReboot) })
	}
	boundTask(&task)
	task.SwitchID, task.State = s.ID, state
	if state == v1beta1.Tainted {
		task.TaintGeneration = s.TaintGeneration
	}
	logger.Info("Completed task", "phase", task.Phase, "message", task.Message, "took", time.Since(start))
	return &task
}

// planTainted plans after the GPUs of the switch are tainted. During a rolling update, the plan
// includes the claims that another plugin has prepared.
func (f *Follower) planTainted(ctx context.Context, s *v1beta1.Switch) v1beta1.Task {
	ctx, cancel := context.WithTimeout(ctx, planBudget)
	defer cancel()
	if err := f.Claims.Refresh(ctx); err != nil {
		klog.FromContext(ctx).Error(err, "Cannot read the claims of this node, so there is no plan yet")
		time.AfterFunc(taintSettle, f.Nudge)
		return v1beta1.Task{}
	}
	return f.Profile.Plan(ctx, s.To)
}

// apply changes the GPUs, and waits a while until they are published.
func (f *Follower) apply(ctx context.Context, s *v1beta1.Switch, change func(context.Context) v1beta1.Task) v1beta1.Task {
	var task v1beta1.Task
	f.Monitor.Change(ctx, func() { task = bounded(ctx, budgetOf(s), change) })
	f.Publisher.Publish(ctx)
	f.awaitPublished(ctx)
	return task
}

// awaitPublished waits for a while until the API server has the slices. The controller
// compares them, and would have to wait for another report.
func (f *Follower) awaitPublished(ctx context.Context) {
	if !f.Publisher.IsMine() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, publishedPatience)
	defer cancel()
	err := wait.PollUntilContextCancel(ctx, publishedInterval, true, func(ctx context.Context) (bool, error) {
		published, err := f.Publisher.Stored(ctx)
		return err == nil && f.Publisher.Matches(published), nil
	})
	if err != nil {
		klog.FromContext(ctx).Info("The API server does not have all slices yet")
	}
}

// budgetOf is how long a change of the GPUs may take: a little less than the controller waits
// for it, so that the controller gets an answer. It does not depend on the controller's clock.
func budgetOf(s *v1beta1.Switch) time.Duration {
	if s.DeadlineTime == nil {
		return applyBudget
	}
	all := s.DeadlineTime.Sub(s.StateChangeTime.Time)
	if all <= 0 {
		return applyBudget
	}
	return all - min(all/10, answerMargin)
}

// bounded runs f with a deadline.
func bounded[T any](ctx context.Context, budget time.Duration, f func(context.Context) T) T {
	ctx, cancel := context.WithTimeout(ctx, budget)
	defer cancel()
	return f(ctx)
}
