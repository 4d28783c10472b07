package controller

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/recorder"

	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/controller/adopt"
	"github.com/tranche-dev/tranche/pkg/controller/drain"
	"github.com/tranche-dev/tranche/pkg/controller/plans"
	"github.com/tranche-dev/tranche/pkg/controller/state"
	"github.com/tranche-dev/tranche/pkg/rollout"
)

// Reconciler switches nodes to their desired profiles.
type Reconciler struct {
	// Client reads from caches and writes; Reader reads from the API server.
	Client client.Client
	Reader client.Reader
	Clock  clock.PassiveClock
	Events recorder.EventRecorder
	// Plans admits nodes.
	Plans *plans.Decider
	state.Machine
	// Policy has the defaults for profiles.
	Policy v1beta1.SwitchPolicy
	// PauseLabels are the node labels that are changed to pause monitoring pods.
	PauseLabels []string
	// MonitoringNamespaces are the namespaces of the DaemonSets whose pods are waited for.
	MonitoringNamespaces []string
	// StartupTaint is the key of the taint that nodes register with, empty if they have none.
	StartupTaint string
	// Adopter writes what node labels say into GPUNodes.
	Adopter *adopt.Adopter

	drainer *drain.Drainer
	metrics *metrics
	memory  memory
}

// callTimeout limits the reconciliation of a node, so that a request that hangs does not block
// it forever.
const callTimeout = 30 * time.Second

const (
	// firstErrorRetry and lastErrorRetry are the first and the longest wait after errors. The
	// wait doubles with each error.
	firstErrorRetry = 50 * time.Millisecond
	lastErrorRetry  = 10 * time.Second
)

// Reconcile implements reconcile.Reconciler. The request names a GPUNode.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	ctx = klog.NewContext(ctx, klog.LoggerWithValues(klog.FromContext(ctx), "node", req.Name))
	result, err := r.reconcile(ctx, req.Name)
	if r.memory.clashes(req.Name, apierrors.IsConflict(err)) {
		// The plugin has reported meanwhile, or the cache was outdated.
		klog.FromContext(ctx).V(4).Info("Object changed during reconciliation, retrying", "err", err)
		return reconcile.Result{RequeueAfter: 10 * time.Millisecond}, nil
	}
	return result, err
}

func (r *Reconciler) reconcile(ctx context.Context, name string) (reconcile.Result, error) {
	if err := r.Plans.Begin(ctx); err != nil {
		return reconcile.Result{}, err
	}
	var gpuNode v1beta1.GPUNode
	err := r.Client.Get(ctx, client.ObjectKey{Name: name}, &gpuNode)
	if apierrors.IsNotFound(err) {
		// The cache may be late: a node that was just created is not gone.
		err = r.Reader.Get(ctx, client.ObjectKey{Name: name}, &gpuNode)
	}
	if apierrors.IsNotFound(err) {
		return reconcile.Result{}, r.gone(ctx, name)
	}
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("read GPUNode %s: %w", name, err)
	}
	node, err := r.nodeOf(ctx, name)
	if err != nil {
		return reconcile.Result{}, err
	}
	// Decisions that change anything are based on the API server's state. Only the leader
	// changes a GPUNode, in one reconciliation at a time.
	said, err := r.Adopter.Adopt(ctx, &gpuNode, node, r.Plans.Of(&gpuNode, node.Labels) != nil)
	if err != nil {
		return reconcile.Result{}, err
	}
	r.Plans.SetProblem(name, said.Problem.Reason, said.Problem.Message)
	quiet, wake, err := r.quiet(ctx, &gpuNode, node, said)
	if err != nil {
		return r.again(wake), err
	}
	if quiet {
		start, err := r.start(ctx, &gpuNode, node)
		return r.again(rollout.Earliest(wake, start)), err
	}
	if err := r.Reader.Get(ctx, client.ObjectKey{Name: name}, &gpuNode); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	wake, err = r.advance(ctx, &gpuNode, node, said)
	if err != nil {
		return r.again(wake), err
	}
	start, err := r.start(ctx, &gpuNode, node)
	return r.again(rollout.Earliest(wake, start)), err
}

// nodeOf reads the Node of a GPUNode. It has no UID if it does not exist.
func (r *Reconciler) nodeOf(ctx context.Context, name string) (*corev1.Node, error) {
	var node corev1.Node
	if err := r.Client.Get(ctx, client.ObjectKey{Name: name}, &node); client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("read node %s: %w", name, err)
	}
	node.Name = name
	return &node, nil
}

func (r *Reconciler) again(wake time.Time) reconcile.Result {
	if wake.IsZero() {
		return reconcile.Result{}
	}
	// RequeueAfter of zero would mean never.
	return reconcile.Result{RequeueAfter: max(wake.Sub(r.Clock.Now()), time.Millisecond)}
}

// quiet reports whether there is nothing to do for an idle or failed node, from the caches
// alone. This is the most common case, and needs no request.
func (r *Reconciler) quiet(ctx context.Context, gpuNode *v1beta1.GPUNode, node *corev1.Node, said *adopt.Result) (bool, time.Time, error) {
	switch gpuNode.Status.State {
	case v1beta1.Idle, v1beta1.Failed:
	default:
		return false, time.Time{}, nil
	}
	if leftover(node, r.PauseLabels) {
		return false, time.Time{}, nil
	}
	if r.blockersDue(gpuNode) {
		return false, time.Time{}, nil
	}
	choice, err := r.choice(ctx, false, gpuNode, node, said)
	if err != nil {
		return false, time.Time{}, err
	}
	f := &state.Facts{Now: r.Clock.Now(), Choice: choice}
	if gpuNode.Status.State == v1beta1.Failed {
		f.LookAgain = r.memory.lookAt(gpuNode.Name)
	}
	step := r.Next(gpuNode, f)
	return equality.Semantic.DeepEqual(step.Status, gpuNode.Status) && hasLabels(node, said.Labels(&step.Status)), step.Wake, nil
}

// manySteps is more than the number of steps that a node can take without waiting.
const manySteps = 8

// advance takes steps until the node waits for something, and returns when to look again.
func (r *Reconciler) advance(ctx context.Context, gpuNode *v1beta1.GPUNode, node *corev1.Node, said *adopt.Result) (time.Time, error) {
	for range manySteps {
		facts, looking := r.facts(ctx, gpuNode, node, said)
		if facts == nil {
			return time.Time{}, looking
		}
		step := r.Next(gpuNode, facts)
		if changesCourse(&gpuNode.Status, &step) {
			choice, err := r.choice(ctx, true, gpuNode, node, said)
			if err != nil {
				return time.Time{}, errors.Join(looking, err)
			}
			facts.Choice = choice
			step = r.Next(gpuNode, facts)
		}
		var evicting error
		if step.Evict {
			evicting = r.drain(ctx, gpuNode, facts, step.Force)
			step = r.Next(gpuNode, facts)
		}
		moved := step.Status.State != gpuNode.Status.State || switchID(&step.Status) != switchID(&gpuNode.Status)
		if !moved && apierrors.IsConflict(looking) {
			return time.Time{}, looking // It is retried at once, so nothing is reported.
		}
		taken := r.take(ctx, gpuNode, &step, moved)
		if taken == nil {
			// What people see of it elsewhere comes last.
			taken = r.report(ctx, node, said.Labels(&gpuNode.Status))
		}
		if err := errors.Join(looking, evicting, taken); err != nil {
			r.memory.lookSoon(gpuNode.Name) // What was seen is lost.
			return time.Time{}, err
		}
		if !moved {
			return step.Wake, nil
		}
	}
	return r.Clock.Now().Add(time.Millisecond), nil
}

// changesCourse reports whether a step begins or cancels a switch.
func changesCourse(before *v1beta1.GPUNodeStatus, step *state.Step) bool {
	if switchID(&step.Status) == switchID(before) {
		return false
	}
	return step.Status.Switch != nil || step.Record == nil || step.Record.Result != v1beta1.ResultSucceeded
}

// drain evicts pods, and updates the holders.
func (r *Reconciler) drain(ctx context.Context, gpuNode *v1beta1.GPUNode, facts *state.Facts, force bool) error {
	leave, err := r.drainer.Evict(ctx, facts.Holders, force)
	for _, pod := range leave {
		r.reportEviction(pod, gpuNode.Status.Switch.To.ProfileName, force)
	}
	facts.Evicted = r.memory.evicted(gpuNode.Name, int32(len(leave)))
	if gpuNode.Status.State == v1beta1.Verifying {
		return errors.Join(err, r.verify(ctx, gpuNode, facts))
	}
	return errors.Join(err, r.lookAtPods(ctx, gpuNode, facts))
}

func switchID(s *v1beta1.GPUNodeStatus) string {
	if s.Switch == nil {
		return ""
	}
	return s.Switch.ID
}

// take performs a step. The taint and labels of the Node are removed before the new state is
// written; enforce sets them after it.
func (r *Reconciler) take(ctx context.Context, gpuNode *v1beta1.GPUNode, step *state.Step, moved bool) error {
	before := gpuNode.Status.DeepCopy()
	if !step.Status.RequestsTaints() {
		var tainted *v1beta1.Switch
		if before.RequestsTaints() {
			tainted = before.Switch
		}
		if err := r.release(ctx, gpuNode.Name, tainted); err != nil {
			return err
		}
	}
	if err := r.write(ctx, gpuNode, step, moved || step.Record != nil); err != nil {
		if !before.RequestsTaints() && plans.Refused(err) {
			// Other nodes must not wait for a node whose status cannot be written.
			r.Plans.Suspend(gpuNode.Name)
		}
		return err
	}
	if gpuNode.Status.State != v1beta1.Failed {
		r.memory.unblocked(gpuNode.Name)
	}
	if moved {
		r.reportChange(ctx, gpuNode, before, step)
	}
	return nil
}

// write writes the status if it changed. Changes that only inform people can be delayed.
func (r *Reconciler) write(ctx context.Context, gpuNode *v1beta1.GPUNode, step *state.Step, urgent bool) error {
	if equality.Semantic.DeepEqual(step.Status, gpuNode.Status) {
		return nil
	}
	now := r.Clock.Now()
	if !urgent && informsOnly(&gpuNode.Status, &step.Status) {
		if at := r.memory.nextMessage(gpuNode.Name, now, since(&step.Status)); now.Before(at) {
			if step.Wake.IsZero() || at.Before(step.Wake) {
				step.Wake = at
			}
			return nil
		}
	}
	if err := r.patchStatus(ctx, gpuNode, &step.Status); err != nil {
		return wrap(err, "write the status of GPUNode %s", gpuNode.Name)
	}
	r.memory.written(gpuNode.Name, now, gpuNode.Status.Switch != nil)
	return nil
}

// patchStatus writes a status. If it ends the taints, they have been removed from the Node
// already; a conflict with a report of the plugin, or with a decision on the next profile, is then
// retried here, so that they are not set and removed once more.
func (r *Reconciler) patchStatus(ctx context.Context, gpuNode *v1beta1.GPUNode, status *v1beta1.GPUNodeStatus) error {
	leaves := gpuNode.Status.RequestsTaints() && !status.RequestsTaints()
	for {
		before := gpuNode.DeepCopy()
		gpuNode.Status = *status.DeepCopy()
		gpuNode.Status.Node, gpuNode.Status.AdmittedHash = before.Status.Node, before.Status.AdmittedHash
		err := r.Client.Status().Patch(ctx, gpuNode, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
		if err == nil {
			return nil
		}
		gpuNode.Status = before.Status
		if !leaves || !apierrors.IsConflict(err) {
			return err
		}
		var now v1beta1.GPUNode
		if err := r.Reader.Get(ctx, client.ObjectKeyFromObject(gpuNode), &now); err != nil {
			return err
		}
		old := before.Status
		old.Node, old.AdmittedHash = now.Status.Node, now.Status.AdmittedHash
		if now.UID != before.UID || !equality.Semantic.DeepEqual(old, now.Status) {
			return err
		}
		*gpuNode = now
	}
}

// informsOnly reports whether two statuses differ only in messages and counts.
func informsOnly(a, b *v1beta1.GPUNodeStatus) bool {
	a, b = a.DeepCopy(), b.DeepCopy()
	for _, s := range []*v1beta1.GPUNodeStatus{a, b} {
		for i := range s.Conditions {
			s.Conditions[i].Message = ""
		}
		if s.Switch != nil {
			s.Switch.EvictedPodCount = 0
		}
	}
	return equality.Semantic.DeepEqual(a, b)
}

func since(s *v1beta1.GPUNodeStatus) time.Time {
	if s.Switch == nil {
		return time.Time{}
	}
	return s.Switch.StateChangeTime.Time
}

// gone cleans up after a GPUNode that was deleted.
func (r *Reconciler) gone(ctx context.Context, name string) error {
	if err := r.release(ctx, name, nil); err != nil {
		return err
	}
	r.memory.forget(name)
	return nil
}

func requestFor(node string) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Name: node}}
}
