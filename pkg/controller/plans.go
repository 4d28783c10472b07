package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/controller/plans"
	"github.com/tranche-dev/tranche/pkg/rollout"
)

// decideAfter is how long changes are collected before the plans are decided again.
const decideAfter = 200 * time.Millisecond

// wake enqueues a node with low priority, after those whose objects changed.
func (q *requests) wake(node string) {
	q.Add(priorityqueue.AddOpts{Priority: ptr.To(handler.LowPriority)}, requestFor(node))
}

func (q *requests) decide() { q.Add(priorityqueue.AddOpts{After: decideAfter}, allPlans) }

// allPlans is the only request of the controller of plans: they are decided together.
var allPlans = requestFor("all")

// setupPlans adds the controller of plans to a manager.
func (r *Reconciler) setupPlans(mgr manager.Manager, decisions *requests) error {
	changed := handler.Funcs{
		CreateFunc: func(context.Context, event.CreateEvent, workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			decisions.decide()
		},
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, _ workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			if matters(e.ObjectOld, e.ObjectNew) {
				decisions.decide()
			}
		},
		DeleteFunc: func(context.Context, event.DeleteEvent, workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			decisions.decide()
		},
	}
	b := builder.ControllerManagedBy(mgr).Named("partitionplan").WatchesRawSource(decisions.Source())
	for _, o := range []client.Object{&v1beta1.PartitionPlan{}, &v1beta1.PartitionProfile{}, &v1beta1.GPUNode{}, &corev1.Node{}} {
		b = b.Watches(o, changed)
	}
	return b.WithOptions(controller.Options{RateLimiter: retries()}).Complete(reconcile.Func(r.decidePlans))
}

// matters reports whether a change of an object can change a decision. Nodes report their status
// every few minutes.
func matters(before, after client.Object) bool {
	a, ok := before.(*corev1.Node)
	b, okToo := after.(*corev1.Node)
	if !ok || !okToo {
		return before.GetResourceVersion() != after.GetResourceVersion()
	}
	return !maps.Equal(a.Labels, b.Labels) || !equality.Semantic.DeepEqual(a.Status.Conditions, b.Status.Conditions)
}

func (r *Reconciler) decidePlans(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if err := r.Plans.Begin(ctx); err != nil {
		return reconcile.Result{}, err
	}
	wake, err := r.Plans.Decide(ctx)
	if errors.Is(err, plans.ErrOutdated) {
		klog.FromContext(ctx).V(4).Info("Object changed while plans were decided, retrying", "err", err)
		return r.again(r.Clock.Now().Add(decideAfter)), nil
	}
	if err != nil {
		return reconcile.Result{}, err
	}
	return r.again(wake), nil
}

// ParseLimits reads the limits of nodes without a plan: numbers, or percentages of them.
func ParseLimits(maxUnavailable, maxFailures string) (most, failures intstr.IntOrString, err error) {
	if most, err = rollout.ParseLimit(maxUnavailable, 1); err != nil {
		return most, failures, fmt.Errorf("the number of nodes that may be unavailable %w", err)
	}
	if failures, err = rollout.ParseLimit(cmp.Or(maxFailures, "0"), 0); err != nil {
		return most, failures, fmt.Errorf("the number of nodes that may fail %w", err)
	}
	return most, failures, nil
}
