package defragment

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/defrag"
)

const (
	// searchInterval is the time between two searches that find no plan.
	searchInterval = time.Minute
	// abortBackoff is how long a node, and pods of the namespace of the waiting pod, are left alone after an attempt
	// was aborted; vainBackoff after one that had evicted pods. Any other pod of the namespace could be made to fail,
	// too, whoever owns it.
	abortBackoff = 10 * time.Minute
	vainBackoff  = time.Hour
	// maxWaitingPods limits the pods for which a plan is made in one search, and planTimeout the time for
	// each.
	maxWaitingPods = 16
	planTimeout    = 2 * time.Second
	// maxNodes and maxDevices limit what is read for one search: they keep the memory of the controller
	// below its limit. The next search continues with the next nodes.
	maxNodes   = 256
	maxDevices = 16384
)

// search finds a waiting pod for which there is a plan, and begins an attempt. It returns whether it
// began one.
func (d *Defragmenter) search(ctx context.Context, nodes []v1beta1.GPUNode) (bool, error) {
	now := d.Clock.Now()
	left := d.PerHour
	for i := range nodes {
		left -= len(recentEvictions(nodes[i].Status.Defragmentation, now))
	}
	if left <= 0 || now.Before(d.nextSearch) {
		return false, nil
	}
	waiting, err := d.waitingPods(ctx, nodes, now)
	if err != nil || len(waiting) == 0 {
		return false, err
	}
	d.nextSearch = now.Add(searchInterval)
	d.searches++
	in, err := d.readForSearch(ctx, d.nodesToSearch(nodes, now), waiting)
	if err != nil {
		return false, err
	}
	options := defrag.Options{MaxPods: min(d.MaxPods, left), Timeout: planTimeout}
	first, _, plan, err := firstPlan(ctx, in, options, waiting)
	if plan == nil || err != nil {
		return false, err
	}
	// All pods of the cluster are read only if there would be a plan without them.
	if err := d.readAntiAffinity(ctx, in); err != nil {
		return false, err
	}
	waiting = waiting[first:]
	for {
		found, planner, plan, err := firstPlan(ctx, in, options, waiting)
		if plan == nil || err != nil {
			return false, err
		}
		pod := waiting[found]
		begun, err := d.begin(ctx, plan, planner.Overlapping(plan), pod, ownersOf(in.Pods))
		if apierrors.IsInvalid(err) {
			// The plan has more than a GPUNode can hold. It must not keep room from other pods.
			klog.FromContext(ctx).Error(err, "Cannot carry out a plan to make room for a pod; trying other pods", "pod", klog.KObj(pod), "gpunode", plan.Node)
			waiting = waiting[found+1:]
			continue
		}
		if begun {
			d.nextSearch = time.Time{}
		}
		return begun, err
	}
}

// firstPlan plans for the first of the pods for which there is a plan, nil: there is none.
func firstPlan(ctx context.Context, in *defrag.Input, options defrag.Options, waiting []*corev1.Pod) (int, *defrag.Planner, *defrag.Plan, error) {
	planner, err := defrag.New(in, options)
	if err != nil {
		return 0, nil, nil, fmt.Errorf("prepare a plan to move pods: %w", err)
	}
	for i, pod := range waiting {
		plan, err := planner.Plan(ctx, pod)
		var refusal *defrag.Refusal
		switch {
		case errors.As(err, &refusal):
			klog.FromContext(ctx).V(2).Info("There is no plan to make room for a pod", "pod", klog.KObj(pod), "reason", refusal.Reason, "message", refusal.Message)
		case err != nil:
			return 0, nil, nil, fmt.Errorf("plan to make room for pod %s: %w", klog.KObj(pod), err)
		default:
			return i, planner, plan, nil
		}
	}
	return 0, nil, nil, nil
}

// ownersOf returns the UIDs of the controllers of pods, by the UIDs of the pods.
func ownersOf(pods []corev1.Pod) map[types.UID]types.UID {
	out := map[types.UID]types.UID{}
	for i := range pods {
		if owner := metav1.GetControllerOf(&pods[i]); owner != nil {
			out[pods[i].UID] = owner.UID
		}
	}
	return out
}

// waitingPods returns the pods that have waited for long enough, some of each namespace, and the oldest
// pods of a namespace first.
func (d *Defragmenter) waitingPods(ctx context.Context, nodes []v1beta1.GPUNode, now time.Time) ([]*corev1.Pod, error) {
	aborted := map[string]bool{}
	for i := range nodes {
		if a := nodes[i].Status.Defragmentation; abortedRecently(a, now) {
			aborted[a.Pod.Namespace] = true
		}
	}
	byNamespace := map[string][]*corev1.Pod{}
	err := each(ctx, d.Reader, &corev1.PodList{}, func(pod *corev1.Pod) {
		if since, waits := unschedulableSince(pod); waits && now.Sub(since) >= d.After && !aborted[pod.Namespace] && mayRequestDevices(pod) {
			byNamespace[pod.Namespace] = append(byNamespace[pod.Namespace], trimPod(pod))
		}
	}, client.MatchingFields{"spec.nodeName": "", "status.phase": string(corev1.PodPending)})
	if err != nil {
		return nil, fmt.Errorf("list the pods that wait: %w", err)
	}
	return roundRobin(byNamespace, d.searches), nil
}

// mayRequestDevices reports whether a pod has claims or requests extended resources. Plans for other pods would
// only use up the limit.
func mayRequestDevices(pod *corev1.Pod) bool {
	return len(pod.Spec.ResourceClaims) > 0 || slices.ContainsFunc(slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers), func(c corev1.Container) bool {
		return slices.ContainsFunc(slices.Collect(maps.Keys(c.Resources.Requests)), func(name corev1.ResourceName) bool { return strings.Contains(string(name), "/") })
	})
}

// unschedulableSince returns when the scheduler first found no node for a pod. A pod with a nominated node does
// not wait for room: the scheduler makes it by preemption, and moves would come on top.
func unschedulableSince(pod *corev1.Pod) (time.Time, bool) {
	if pod.Status.NominatedNodeName != "" {
		return time.Time{}, false
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable {
			return c.LastTransitionTime.Time, true
		}
	}
	return time.Time{}, false
}

// roundRobin takes pods of all namespaces, one of each at a time. With each offset, another namespace comes
// first, and other pods of a namespace that has many.
func roundRobin(byNamespace map[string][]*corev1.Pod, offset int) (out []*corev1.Pod) {
	var names []string
	for name, pods := range byNamespace {
		names = append(names, name)
		slices.SortFunc(pods, func(a, b *corev1.Pod) int {
			return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
		})
		start := offset * maxWaitingPods % len(pods)
		if len(pods) <= maxWaitingPods {
			start = 0
		}
		byNamespace[name] = slices.Concat(pods[start:], pods[:start])
	}
	slices.Sort(names)
	for round := 0; len(out) < maxWaitingPods; round++ {
		before := len(out)
		for i := range names {
			pods := byNamespace[names[(i+offset)%len(names)]]
			if round < len(pods) && len(out) < maxWaitingPods {
				out = append(out, pods[round])
			}
		}
		if len(out) == before {
			break
		}
	}
	return out
}

// abortedRecently reports whether an attempt was aborted, or could not be ended at its deadline, a short time ago.
func abortedRecently(a *v1beta1.Defragmentation, now time.Time) bool {
	if a == nil || a.State == v1beta1.DefragmentationSucceeded {
		return false
	}
	backoff, ended := abortBackoff, a.DeadlineTime
	if slices.ContainsFunc(a.Moves, func(m v1beta1.DefragmentationMove) bool { return m.EvictionTime != nil }) {
		backoff = vainBackoff
	}
	if a.EndTime != nil {
		ended = *a.EndTime
	}
	return now.Sub(ended.Time) < backoff
}

// nodesToSearch returns the names of the nodes that a plan may use, starting with those that the last
// search did not reach.
func (d *Defragmenter) nodesToSearch(nodes []v1beta1.GPUNode, now time.Time) (names []string) {
	for i := range nodes {
		if isAvailable(&nodes[i], now) {
			names = append(names, nodes[i].Name)
		}
	}
	slices.Sort(names)
	next, found := slices.BinarySearch(names, d.lastNode)
	if found {
		next++
	}
	return slices.Concat(names[next:], names[:next])
}

// isAvailable reports whether a plan may use a node: it is not being switched to another profile, no attempt
// was aborted there recently, and none has to be ended there.
func isAvailable(node *v1beta1.GPUNode, now time.Time) bool {
	s := &node.Status
	isSwitching := s.State != "" && s.State != v1beta1.Idle && s.State != v1beta1.Failed
	hasAttempt := s.Defragmentation != nil && s.Defragmentation.EndTime == nil
	return !isSwitching && !hasAttempt && !abortedRecently(s.Defragmentation, now)
}
