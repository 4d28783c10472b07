package defragment

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/api/v1alpha1"
	"github.com/tranche-dev/tranche/pkg/controller/drain"
	"github.com/tranche-dev/tranche/pkg/defrag"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/text"
)

const (
	// attemptTime is how long an attempt may take, and reserveTime how long the plugin may take to
	// taint devices.
	attemptTime = 15 * time.Minute
	reserveTime = time.Minute
	// replaceTime is how long an evicted pod and its replacement may take.
	replaceTime = 5 * time.Minute
	// budgetTime is what evictions are counted in.
	budgetTime = time.Hour
)

// begin writes a plan to the GPUNode. owners are the controllers of pods.
func (d *Defragmenter) begin(ctx context.Context, plan *defrag.Plan, reserved []defrag.Device, pod *corev1.Pod, owners map[types.UID]types.UID) error {
	var node v1alpha1.GPUNode
	if err := d.Reader.Get(ctx, client.ObjectKey{Name: plan.Node}, &node); err != nil {
		return fmt.Errorf("read GPUNode %s, on which there would be room for pod %s: %w", plan.Node, plan.Pod, err)
	}
	last := node.Status.Defragmentation
	if last != nil && last.Ended == nil {
		return nil // the cache is older
	}
	now := metav1.NewMicroTime(d.Clock.Now())
	a := &v1alpha1.Defragmentation{
		ID: string(uuid.NewUUID()), State: v1alpha1.DefragmentationReserving,
		Pod:     v1alpha1.PodReference{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID},
		Devices: defrag.Names(plan.Devices), Reserved: defrag.Names(reserved),
		Started: now, Deadline: metav1.NewMicroTime(now.Add(attemptTime)), Evictions: recent(last, now.Time),
	}
	for _, m := range plan.Moves {
		a.Moves = append(a.Moves, v1alpha1.DefragmentationMove{
			PodReference: v1alpha1.PodReference{Namespace: m.Pod.Namespace, Name: m.Pod.Name, UID: m.UID},
			Owner:        owners[m.UID], From: defrag.Names(m.From), Node: m.Node, To: defrag.Names(m.To),
		})
	}
	before := node.DeepCopy()
	node.Status.Defragmentation = a
	if err := d.save(ctx, &node, before); err != nil {
		return err
	}
	d.started(ctx, &node)
	return nil
}

// recent are the evictions of a node that count now.
func recent(a *v1alpha1.Defragmentation, now time.Time) []metav1.MicroTime {
	if a == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(a.Evictions), func(t metav1.MicroTime) bool { return now.Sub(t.Time) >= budgetTime })
}

// save writes the attempt, unless the GPUNode has changed since it was read.
func (d *Defragmenter) save(ctx context.Context, node, before *v1alpha1.GPUNode) error {
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := d.Client.Status().Patch(ctx, node, patch); err != nil {
		return fmt.Errorf("write the defragmentation to GPUNode %s: %w", node.Name, err)
	}
	return nil
}

// carryOn does the next step of the attempt on a node. It returns whether that goes on.
func (d *Defragmenter) carryOn(ctx context.Context, name string) (bool, error) {
	var node v1alpha1.GPUNode
	if err := d.Reader.Get(ctx, client.ObjectKey{Name: name}, &node); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	a := node.Status.Defragmentation
	if a == nil || a.Ended != nil {
		return false, nil // the cache is older
	}
	pod, err := d.podNow(ctx, a.Pod)
	now := d.Clock.Now()
	switch {
	case err != nil:
		return true, err
	case pod == nil || pod.DeletionTimestamp != nil:
		return false, d.abort(ctx, &node, "the pod is gone")
	case pod.Spec.NodeName != "":
		return false, d.end(ctx, &node, v1alpha1.DefragmentationSucceeded, "scheduled to node "+pod.Spec.NodeName)
	case !now.Before(a.Deadline.Time):
		return false, d.abort(ctx, &node, "not scheduled until the deadline; what do its events say?")
	case a.State == v1alpha1.DefragmentationReserving:
		return d.reserve(ctx, &node, pod)
	case a.State == v1alpha1.DefragmentationEvicting:
		return d.evict(ctx, &node, pod)
	}
	return true, nil
}

// podNow reads a pod, nil if it is gone.
func (d *Defragmenter) podNow(ctx context.Context, name v1alpha1.PodReference) (*corev1.Pod, error) {
	var pod corev1.Pod
	err := d.Reader.Get(ctx, types.NamespacedName{Namespace: name.Namespace, Name: name.Name}, &pod)
	switch {
	case apierrors.IsNotFound(err) || err == nil && pod.UID != name.UID:
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read pod %s/%s, which is part of a defragmentation: %w", name.Namespace, name.Name, err)
	}
	return &pod, nil
}

// reserve waits for the taints, proves the plan again and asks whether the pods may be evicted.
func (d *Defragmenter) reserve(ctx context.Context, node *v1alpha1.GPUNode, pod *corev1.Pod) (bool, error) {
	a := node.Status.Defragmentation
	tainted, err := d.tainted(ctx, node.Name, a)
	now := d.Clock.Now()
	switch since := d.reserved[a.ID]; {
	case err != nil:
		return true, err
	case !tainted && now.Sub(a.Started.Time) >= reserveTime:
		return false, d.abort(ctx, node, "the devices that overlap the wanted ones were not tainted in "+reserveTime.String()+"; does the node's plugin run?")
	case !tainted:
		return true, nil
	case since.IsZero():
		d.reserved[a.ID] = now
		return true, nil
	case now.Sub(since) < d.Settle:
		return true, nil
	}
	if over, err := d.over(ctx, node, pod, a.Moves); over || err != nil {
		return a.Ended == nil, err
	}
	for i := range a.Moves {
		m := &a.Moves[i]
		refusal, err := d.Evict(ctx, podOf(m), true)
		if err != nil {
			return true, err
		}
		if refusal != "" {
			return false, d.abort(ctx, node, fmt.Sprintf("pod %s/%s cannot be evicted: %s", m.Namespace, m.Name, refusal))
		}
	}
	before := node.DeepCopy()
	a.State = v1alpha1.DefragmentationEvicting
	if err := d.save(ctx, node, before); err != nil {
		return true, err
	}
	return d.evict(ctx, node, pod)
}

// over proves the plan again for the moves that are left. It returns true if no more pods are evicted: the plan
// does not hold any more, or the waiting pod fits.
func (d *Defragmenter) over(ctx context.Context, node *v1alpha1.GPUNode, pod *corev1.Pod, left []v1alpha1.DefragmentationMove) (bool, error) {
	err := d.check(ctx, node, pod, left)
	var refusal *defrag.Refusal
	switch {
	case !errors.As(err, &refusal):
		return false, err
	case refusal.Reason == defrag.FitsNow:
		return true, d.placing(ctx, node)
	}
	return true, d.abort(ctx, node, "the cluster has changed: "+refusal.String())
}

// placing leaves the rest to the scheduler.
func (d *Defragmenter) placing(ctx context.Context, node *v1alpha1.GPUNode) error {
	before := node.DeepCopy()
	node.Status.Defragmentation.State = v1alpha1.DefragmentationPlacing
	return d.save(ctx, node, before)
}

// tainted tells whether the API server has the taints of an attempt.
func (d *Defragmenter) tainted(ctx context.Context, node string, a *v1alpha1.Defragmentation) (bool, error) {
	published, err := d.slices(ctx, node)
	if err != nil {
		return false, err
	}
	for i := range published {
		if published[i].Spec.Driver != gpu.DriverName {
			continue
		}
		for _, device := range published[i].Spec.Devices {
			is := func(t resourceapi.DeviceTaint) bool { return t.Key == v1alpha1.TaintReserved && t.Value == a.ID }
			if slices.Contains(a.Reserved, device.Name) && !slices.ContainsFunc(device.Taints, is) {
				return false, nil
			}
		}
	}
	return true, nil
}

// evict evicts the next pod, once the pod before it has another place.
func (d *Defragmenter) evict(ctx context.Context, node *v1alpha1.GPUNode, pod *corev1.Pod) (bool, error) {
	a := node.Status.Defragmentation
	for i := range a.Moves {
		m := &a.Moves[i]
		if m.Placed {
			continue
		}
		if m.Evicted != nil {
			return d.replaced(ctx, node, m)
		}
		if i > 0 {
			if over, err := d.over(ctx, node, pod, a.Moves[i:]); over || err != nil {
				return a.Ended == nil, err
			}
		}
		// It is written first, so that no eviction is missing in the budget.
		before := node.DeepCopy()
		now := metav1.NewMicroTime(d.Clock.Now())
		m.Evicted, a.Evictions = &now, append(recent(a, now.Time), now)
		if err := d.save(ctx, node, before); err != nil {
			return true, err
		}
		return d.evictOne(ctx, node, &node.Status.Defragmentation.Moves[i])
	}
	return true, d.placing(ctx, node)
}

func (d *Defragmenter) evictOne(ctx context.Context, node *v1alpha1.GPUNode, m *v1alpha1.DefragmentationMove) (bool, error) {
	refusal, err := d.Evict(ctx, podOf(m), false)
	switch {
	case err != nil:
		return true, err
	case refusal != "":
		d.metrics.evictions.WithLabelValues("refused").Inc()
		return false, d.abort(ctx, node, fmt.Sprintf("the eviction of pod %s/%s was refused: %s", m.Namespace, m.Name, refusal))
	}
	d.metrics.evictions.WithLabelValues("evicted").Inc()
	d.podEvent(m.PodReference, "Evicted to make room for another pod; its replacement fits on node "+m.Node)
	return true, nil
}

// replaced waits until an evicted pod has released its devices and its replacement has a node.
func (d *Defragmenter) replaced(ctx context.Context, node *v1alpha1.GPUNode, m *v1alpha1.DefragmentationMove) (bool, error) {
	old, err := d.podNow(ctx, m.PodReference)
	if err != nil {
		return true, err
	}
	if old != nil && old.DeletionTimestamp == nil {
		return d.evictOne(ctx, node, m) // the controller ended before it did
	}
	late := d.Clock.Now().Sub(m.Evicted.Time) >= replaceTime
	held, err := d.held(ctx, node.Name, m)
	switch {
	case err != nil:
		return true, err
	case (old != nil || held) && late:
		return false, d.abort(ctx, node, fmt.Sprintf("pod %s/%s was evicted and still holds its devices", m.Namespace, m.Name))
	case old != nil || held:
		return true, nil
	}
	var pods corev1.PodList
	if err := d.Reader.List(ctx, &pods, client.InNamespace(m.Namespace)); err != nil {
		return true, fmt.Errorf("list the pods of namespace %s, in which one was evicted: %w", m.Namespace, err)
	}
	is := func(p corev1.Pod) bool {
		owner := metav1.GetControllerOf(&p)
		return owner != nil && owner.UID == m.Owner && p.Spec.NodeName != "" && !p.CreationTimestamp.Add(time.Second).Before(m.Evicted.Time)
	}
	if slices.ContainsFunc(pods.Items, is) {
		before := node.DeepCopy()
		m.Placed = true
		return true, d.save(ctx, node, before)
	}
	if late {
		return false, d.abort(ctx, node, fmt.Sprintf("the pod that replaces %s/%s has no node, so no more pods are moved", m.Namespace, m.Name))
	}
	return true, nil
}

// held tells whether a claim holds what a pod had.
func (d *Defragmenter) held(ctx context.Context, node string, m *v1alpha1.DefragmentationMove) (bool, error) {
	var claims resourceapi.ResourceClaimList
	if err := d.Client.List(ctx, &claims, client.InNamespace(m.Namespace), client.MatchingFields{drain.NodeIndex: node}); err != nil {
		return false, fmt.Errorf("list the ResourceClaims of node %s: %w", node, err)
	}
	return slices.ContainsFunc(claims.Items, func(c resourceapi.ResourceClaim) bool {
		return slices.ContainsFunc(c.Status.Allocation.Devices.Results, func(r resourceapi.DeviceRequestAllocationResult) bool {
			return r.Driver == gpu.DriverName && slices.Contains(m.From, r.Device)
		})
	}), nil
}

func podOf(m *v1alpha1.DefragmentationMove) *drain.Pod {
	return &drain.Pod{NamespacedName: types.NamespacedName{Namespace: m.Namespace, Name: m.Name}, UID: m.UID}
}

func (d *Defragmenter) abort(ctx context.Context, node *v1alpha1.GPUNode, why string) error {
	return d.end(ctx, node, v1alpha1.DefragmentationAborted, why)
}

func (d *Defragmenter) end(ctx context.Context, node *v1alpha1.GPUNode, state v1alpha1.DefragmentationState, message string) error {
	before := node.DeepCopy()
	a := node.Status.Defragmentation
	now := metav1.NewMicroTime(d.Clock.Now())
	a.State, a.Ended, a.Message, a.Evictions = state, &now, text.Cut(message, mostNote), recent(a, now.Time)
	if err := d.save(ctx, node, before); err != nil {
		return err
	}
	d.finished(ctx, node)
	return nil
}
