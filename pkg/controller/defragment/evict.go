package defragment

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/controller/drain"
)

const (
	// clockTolerance is subtracted from the time of an eviction before creation times of pods are compared with
	// it. The controller's clock may be two seconds ahead of the API server's, and creation times have a
	// resolution of one second.
	clockTolerance = 3 * time.Second
	// namespaceInterval is the minimum time between two lists of the pods of a namespace, which can have
	// very many.
	namespaceInterval = 10 * time.Second
)

// evict evicts the next pod, once the pod before it has another place. isProven tells that the plan was
// proven in this step.
func (d *Defragmenter) evict(ctx context.Context, node *v1beta1.GPUNode, pod *corev1.Pod, isProven bool) (bool, error) {
	a := node.Status.Defragmentation
	next := slices.IndexFunc(a.Moves, func(m v1beta1.DefragmentationMove) bool { return !m.Placed })
	if next < 0 {
		return true, d.awaitScheduling(ctx, node)
	}
	if m := &a.Moves[next]; m.EvictionTime != nil {
		old, err := d.getPod(ctx, m.PodReference)
		if err != nil {
			return true, err
		}
		if old == nil || old.DeletionTimestamp != nil {
			return d.awaitReplacement(ctx, node, next, old != nil)
		}
		// The eviction was written down and did not happen, maybe long ago.
	}
	if !isProven {
		if stop, err := d.proveAgain(ctx, node, pod, a.Moves[next:]); stop || err != nil {
			return a.EndTime == nil, err
		}
	}
	return d.evictOne(ctx, node, next)
}

// evictOne writes an eviction down and carries it out.
func (d *Defragmenter) evictOne(ctx context.Context, node *v1beta1.GPUNode, index int) (bool, error) {
	before := node.DeepCopy()
	a := node.Status.Defragmentation
	m := &a.Moves[index]
	now := metav1.NewMicroTime(d.Clock.Now())
	a.EvictionTimes = slices.DeleteFunc(recentEvictions(a, now.Time), func(t metav1.MicroTime) bool { return m.EvictionTime != nil && t.Equal(m.EvictionTime) })
	a.EvictionTimes = append(a.EvictionTimes, now)
	m.EvictionTime = &now
	if err := d.save(ctx, node, before); err != nil {
		return true, err
	}
	m = &node.Status.Defragmentation.Moves[index]
	refusal, err := d.Evict(ctx, podOf(m), false)
	switch {
	case err != nil:
		return true, err
	case refusal != "":
		d.metrics.evictions.WithLabelValues(names.EvictionRefused).Inc()
		return false, d.abort(ctx, node, fmt.Sprintf("the eviction of pod %s/%s was refused: %s", m.Namespace, m.Name, refusal))
	}
	d.metrics.evictions.WithLabelValues(names.EvictionEvicted).Inc()
	d.podEvent(m.PodReference, names.EventEvictedForDefragmentation, "Evicted to make room for another pod; the replacement fits on node "+m.ToNodeName)
	return true, nil
}

// awaitReplacement waits until an evicted pod has released its devices and its replacement has a node.
func (d *Defragmenter) awaitReplacement(ctx context.Context, node *v1beta1.GPUNode, index int, isTerminating bool) (bool, error) {
	m := &node.Status.Defragmentation.Moves[index]
	isLate := d.Clock.Now().Sub(m.EvictionTime.Time) >= replaceTimeout
	isHeld, err := d.holdsDevices(ctx, node.Name, m)
	switch {
	case err != nil:
		return true, err
	case (isTerminating || isHeld) && isLate:
		return false, d.abort(ctx, node, fmt.Sprintf("pod %s/%s was evicted and still holds its devices after %s; see kubectl describe pod -n %s %s", m.Namespace, m.Name, replaceTimeout, m.Namespace, m.Name))
	case isTerminating || isHeld:
		return true, nil
	}
	isReplaced, err := d.isReplaced(ctx, node.Status.Defragmentation.Moves, index, isLate)
	switch {
	case err != nil:
		return true, err
	case isReplaced:
		before := node.DeepCopy()
		m.Placed = true
		return true, d.save(ctx, node, before)
	case isLate:
		return false, d.abort(ctx, node, fmt.Sprintf("the replacement of pod %s/%s has no node after %s, so no more pods are evicted", m.Namespace, m.Name, replaceTimeout))
	}
	return true, nil
}

// isReplaced reports whether an evicted pod has a replacement with a node: its controller has as many new pods
// with a node as pods of it were evicted. It looks on the node of the plan first, and in the whole namespace
// now and then, or always if all is set.
func (d *Defragmenter) isReplaced(ctx context.Context, moves []v1beta1.DefragmentationMove, index int, all bool) (bool, error) {
	last := &moves[index]
	evicted := slices.DeleteFunc(slices.Clone(moves[:index+1]), func(m v1beta1.DefragmentationMove) bool { return m.OwnerUID != last.OwnerUID })
	since := evicted[0].EvictionTime.Add(-clockTolerance)
	isReplacement := func(p *corev1.Pod) bool {
		owner := metav1.GetControllerOf(p)
		return owner != nil && owner.UID == last.OwnerUID && p.Spec.NodeName != "" && p.Status.Phase != corev1.PodFailed &&
			!p.CreationTimestamp.Time.Before(since) && !slices.ContainsFunc(moves, func(m v1beta1.DefragmentationMove) bool { return m.UID == p.UID })
	}
	count := func(options ...client.ListOption) (enough bool, err error) {
		found := 0
		err = each(ctx, d.Reader, &corev1.PodList{}, func(p *corev1.Pod) {
			if isReplacement(p) {
				found++
			}
		}, append(options, client.InNamespace(last.Namespace))...)
		if err != nil {
			return false, fmt.Errorf("list the pods of namespace %s, in which pod %s was evicted: %w", last.Namespace, last.Name, err)
		}
		return found >= len(evicted), nil
	}
	if enough, err := count(client.MatchingFields{"spec.nodeName": last.ToNodeName}); enough || err != nil {
		return enough, err
	}
	now := d.Clock.Now()
	if !all && now.Sub(d.listedAt) < namespaceInterval {
		return false, nil
	}
	d.listedAt = now
	return count()
}

// holdsDevices reports whether a claim holds what a pod had.
func (d *Defragmenter) holdsDevices(ctx context.Context, node string, m *v1beta1.DefragmentationMove) (bool, error) {
	var claims resourceapi.ResourceClaimList
	if err := d.Client.List(ctx, &claims, client.InNamespace(m.Namespace), client.MatchingFields{drain.NodeIndex: node}); err != nil {
		return false, fmt.Errorf("list the ResourceClaims of node %s: %w", node, err)
	}
	return slices.ContainsFunc(claims.Items, func(c resourceapi.ResourceClaim) bool {
		return slices.ContainsFunc(c.Status.Allocation.Devices.Results, func(r resourceapi.DeviceRequestAllocationResult) bool {
			return r.Driver == names.DriverName && slices.Contains(m.FromDevices, r.Device)
		})
	}), nil
}

func podOf(m *v1beta1.DefragmentationMove) *drain.Pod {
	return &drain.Pod{NamespacedName: types.NamespacedName{Namespace: m.Namespace, Name: m.Name}, UID: m.UID}
}
