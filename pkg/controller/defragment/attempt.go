package defragment

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/defrag"
	"github.com/tranche-dev/tranche/pkg/text"
)

const (
	// attemptTimeout limits an attempt, and taintTimeout the time until the plugin has tainted devices.
	attemptTimeout = 15 * time.Minute
	taintTimeout   = time.Minute
	// replaceTimeout limits the time until an evicted pod has ended and its replacement has a node.
	replaceTimeout = 5 * time.Minute
	// evictionWindow is the time in which evictions are limited.
	evictionWindow = time.Hour
)

// begin writes a plan to the GPUNode, unless the limits do not allow it or the node is not available. It
// returns whether it did. owners are the controllers of pods.
func (d *Defragmenter) begin(ctx context.Context, plan *defrag.Plan, reserved []defrag.Device, pod *corev1.Pod, owners map[types.UID]types.UID) (bool, error) {
	if !storable(plan, reserved) {
		klog.FromContext(ctx).V(2).Info("A plan to make room for a pod was dropped: a GPUNode cannot list its devices", "pod", plan.Pod, "gpunode", plan.Node)
		return false, nil
	}
	now := metav1.NewMicroTime(d.Clock.Now())
	node, err := d.nodeFor(ctx, plan, now.Time)
	if node == nil || err != nil {
		return false, err
	}
	a := &v1beta1.Defragmentation{
		ID: string(uuid.NewUUID()), State: v1beta1.DefragmentationReserving,
		Pod:     v1beta1.PodReference{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID},
		Devices: defrag.Names(plan.Devices), ReservedDevices: defrag.Names(reserved),
		StartTime: now, DeadlineTime: metav1.NewMicroTime(now.Add(attemptTimeout)), EvictionTimes: recentEvictions(node.Status.Defragmentation, now.Time),
	}
	for _, m := range plan.Moves {
		a.Moves = append(a.Moves, v1beta1.DefragmentationMove{
			PodReference: v1beta1.PodReference{Namespace: m.Pod.Namespace, Name: m.Pod.Name, UID: m.UID},
			OwnerUID:     owners[m.UID], FromDevices: defrag.Names(m.From), ToNodeName: m.Node, ToDevices: defrag.Names(m.To),
		})
	}
	before := node.DeepCopy()
	node.Status.Defragmentation = a
	if err := d.save(ctx, node, before); err != nil {
		return false, err
	}
	d.reportStart(ctx, node)
	return true, nil
}

// storable reports whether the API server accepts a plan in a GPUNode.
func storable(plan *defrag.Plan, reserved []defrag.Device) bool {
	moved, most := 0, len(plan.Devices)
	for _, m := range plan.Moves {
		moved, most = moved+len(m.From)+len(m.To), max(most, len(m.From), len(m.To))
	}
	return most <= v1beta1.MaxGPUs && len(reserved) <= v1beta1.MaxReservedDevices && len(plan.Moves) <= v1beta1.MaxMoves && moved <= v1beta1.MaxMovedDevices
}

// nodeFor reads the GPUNode of a plan, nil if the plan cannot begin. It reads all GPUNodes from the API
// server: the cache may lack the attempt or the evictions of a moment ago.
func (d *Defragmenter) nodeFor(ctx context.Context, plan *defrag.Plan, now time.Time) (*v1beta1.GPUNode, error) {
	var node *v1beta1.GPUNode
	left, active := d.PerHour, ""
	err := each(ctx, d.Reader, &v1beta1.GPUNodeList{}, func(n *v1beta1.GPUNode) {
		left -= len(recentEvictions(n.Status.Defragmentation, now))
		if n.Name == plan.Node {
			node = n.DeepCopy()
		}
		if n.Status.Defragmentation.Active(now) {
			active = n.Name
		}
	})
	if err != nil {
		return nil, fmt.Errorf("list GPUNodes before room is made on node %s: %w", plan.Node, err)
	}
	if node == nil || active != "" || left < len(plan.Moves) || !isAvailable(node, now) {
		klog.FromContext(ctx).V(2).Info("A plan to make room for a pod was dropped: the cluster has changed", "pod", plan.Pod, "gpunode", plan.Node, "otherAttempt", active, "evictionsLeft", left)
		return nil, nil
	}
	return node, nil
}

// recentEvictions returns the evictions of a node that the hourly limit counts.
func recentEvictions(a *v1beta1.Defragmentation, now time.Time) []metav1.MicroTime {
	if a == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(a.EvictionTimes), func(t metav1.MicroTime) bool { return now.Sub(t.Time) >= evictionWindow })
}

// save writes the attempt, unless the GPUNode has changed since it was read.
func (d *Defragmenter) save(ctx context.Context, node, before *v1beta1.GPUNode) error {
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := d.Client.Status().Patch(ctx, node, patch); err != nil {
		return fmt.Errorf("write the defragmentation to GPUNode %s: %w", node.Name, err)
	}
	return nil
}

// reconcile does the next step of the attempt on a node. It returns whether the attempt continues.
func (d *Defragmenter) reconcile(ctx context.Context, name string) (bool, error) {
	var node v1beta1.GPUNode
	if err := d.Reader.Get(ctx, client.ObjectKey{Name: name}, &node); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	a := node.Status.Defragmentation
	if a == nil || a.EndTime != nil {
		return false, nil // the cache is older
	}
	pod, err := d.getPod(ctx, a.Pod)
	left := a.DeadlineTime.Sub(d.Clock.Now())
	switch {
	case err != nil:
		return true, err
	case pod == nil || pod.DeletionTimestamp != nil:
		return false, d.abort(ctx, &node, "the waiting pod was deleted")
	case pod.Spec.NodeName != "":
		return false, d.end(ctx, &node, v1beta1.DefragmentationSucceeded, "the waiting pod was scheduled to node "+pod.Spec.NodeName)
	case left <= 0:
		return false, d.abort(ctx, &node, fmt.Sprintf("the waiting pod was not scheduled before the deadline; see kubectl describe pod -n %s %s", pod.Namespace, pod.Name))
	}
	// At the deadline the plugin removes the taints. No pod may be evicted after that.
	ctx, cancel := context.WithTimeout(ctx, left)
	defer cancel()
	switch a.State {
	case v1beta1.DefragmentationReserving:
		return d.reserve(ctx, &node, pod)
	case v1beta1.DefragmentationEvicting:
		return d.evict(ctx, &node, pod, false)
	}
	return true, nil
}

// getPod reads a pod, nil if it does not exist any more.
func (d *Defragmenter) getPod(ctx context.Context, ref v1beta1.PodReference) (*corev1.Pod, error) {
	var pod corev1.Pod
	err := d.Reader.Get(ctx, types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}, &pod)
	switch {
	case apierrors.IsNotFound(err) || err == nil && pod.UID != ref.UID:
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read pod %s/%s of a defragmentation: %w", ref.Namespace, ref.Name, err)
	}
	return &pod, nil
}

// awaitScheduling leaves the rest to the scheduler.
func (d *Defragmenter) awaitScheduling(ctx context.Context, node *v1beta1.GPUNode) error {
	before := node.DeepCopy()
	node.Status.Defragmentation.State = v1beta1.DefragmentationPlacing
	return d.save(ctx, node, before)
}

func (d *Defragmenter) abort(ctx context.Context, node *v1beta1.GPUNode, message string) error {
	return d.end(ctx, node, v1beta1.DefragmentationAborted, message)
}

func (d *Defragmenter) end(ctx context.Context, node *v1beta1.GPUNode, state v1beta1.DefragmentationState, message string) error {
	before := node.DeepCopy()
	a := node.Status.Defragmentation
	now := metav1.NewMicroTime(d.Clock.Now())
	a.State, a.EndTime, a.Message, a.EvictionTimes = state, &now, text.Cut(message, maxMessage), recentEvictions(a, now.Time)
	if err := d.save(ctx, node, before); err != nil {
		return err
	}
	d.reportEnd(ctx, node)
	return nil
}
