package defragment

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/api/v1alpha1"
	"github.com/tranche-dev/tranche/pkg/defrag"
)

const (
	// lookPause is the time between two looks that find no plan.
	lookPause = time.Minute
	// abortPause is how long a node and a pod are left alone after an attempt was aborted.
	abortPause = 10 * time.Minute
	// mostPods is how many pods are planned for in one look, and patience how long each may take.
	mostPods = 16
	patience = 2 * time.Second
	// mostNodes is how many nodes are read in one look. Others have their turn in the next.
	mostNodes = 256
)

// look finds a waiting pod for which there is a plan, and begins an attempt.
func (d *Defragmenter) look(ctx context.Context, nodes []v1alpha1.GPUNode) (bool, error) {
	now := d.Clock.Now()
	left := d.PerHour
	for i := range nodes {
		left -= len(recent(nodes[i].Status.Defragmentation, now))
	}
	if left <= 0 || now.Before(d.next) {
		return false, nil
	}
	waiting, err := d.waitingPods(ctx, nodes, now)
	if err != nil || len(waiting) == 0 {
		return false, err
	}
	d.next = now.Add(lookPause)
	window := d.window(nodes, now)
	d.turn++
	in, err := d.read(ctx, window, waiting)
	if err != nil {
		return false, err
	}
	planner, err := defrag.New(in, defrag.Options{MaxPods: min(d.MaxPods, left), Patience: patience})
	if err != nil {
		return false, fmt.Errorf("prepare a plan: %w", err)
	}
	for _, pod := range waiting {
		plan, err := planner.Plan(ctx, pod)
		var refusal *defrag.Refusal
		switch {
		case errors.As(err, &refusal):
			klog.FromContext(ctx).V(2).Info("No room can be made for a pod", "pod", klog.KObj(pod), "reason", refusal.Reason, "words", refusal.Words)
		case err != nil:
			return false, fmt.Errorf("plan for pod %s: %w", klog.KObj(pod), err)
		default:
			d.next = time.Time{}
			return true, d.begin(ctx, plan, planner.Overlapping(plan), pod, ownersOf(in.Pods))
		}
	}
	return false, nil
}

// ownersOf are the UIDs of the controllers of pods.
func ownersOf(pods []corev1.Pod) map[types.UID]types.UID {
	out := map[types.UID]types.UID{}
	for i := range pods {
		if owner := metav1.GetControllerOf(&pods[i]); owner != nil {
			out[pods[i].UID] = owner.UID
		}
	}
	return out
}

// waitingPods are the pods that have waited for long enough: the namespaces in turns, and the pods of each
// by their age.
func (d *Defragmenter) waitingPods(ctx context.Context, nodes []v1alpha1.GPUNode, now time.Time) ([]*corev1.Pod, error) {
	aborted := map[types.UID]bool{}
	for i := range nodes {
		if a := nodes[i].Status.Defragmentation; wasAborted(a, now) {
			aborted[a.Pod.UID] = true
		}
	}
	var pods corev1.PodList
	err := d.Reader.List(ctx, &pods, client.MatchingFields{"spec.nodeName": "", "status.phase": string(corev1.PodPending)})
	if err != nil {
		return nil, fmt.Errorf("list the pods that wait: %w", err)
	}
	byNamespace := map[string][]*corev1.Pod{}
	for i := range pods.Items {
		pod := &pods.Items[i]
		if since, waits := waitsSince(pod); waits && now.Sub(since) >= d.After && !aborted[pod.UID] {
			byNamespace[pod.Namespace] = append(byNamespace[pod.Namespace], pod)
		}
	}
	return inTurns(byNamespace, d.turn), nil
}

// waitsSince is when the scheduler first found no place for a pod.
func waitsSince(pod *corev1.Pod) (time.Time, bool) {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable {
			return c.LastTransitionTime.Time, true
		}
	}
	return time.Time{}, false
}

// inTurns takes pods of all namespaces, one of each at a time. In each turn, another namespace and another
// pod of it is first.
func inTurns(byNamespace map[string][]*corev1.Pod, turn int) (out []*corev1.Pod) {
	var names []string
	for name, pods := range byNamespace {
		names = append(names, name)
		slices.SortFunc(pods, func(a, b *corev1.Pod) int {
			return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
		})
		start := turn * mostPods % len(pods)
		if len(pods) <= mostPods {
			start = 0
		}
		byNamespace[name] = slices.Concat(pods[start:], pods[:start])
	}
	if len(names) == 0 {
		return nil
	}
	slices.Sort(names)
	for round := 0; len(out) < mostPods; round++ {
		before := len(out)
		for i := range names {
			pods := byNamespace[names[(i+turn)%len(names)]]
			if round < len(pods) && len(out) < mostPods {
				out = append(out, pods[round])
			}
		}
		if len(out) == before {
			break
		}
	}
	return out
}

func wasAborted(a *v1alpha1.Defragmentation, now time.Time) bool {
	return a != nil && a.State == v1alpha1.DefragmentationAborted && a.Ended != nil && now.Sub(a.Ended.Time) < abortPause
}

// window are the names of the nodes to look at: those that are not being switched, and on which no attempt
// was aborted just now.
func (d *Defragmenter) window(nodes []v1alpha1.GPUNode, now time.Time) (names []string) {
	for i := range nodes {
		s := &nodes[i].Status
		switching := s.State != "" && s.State != v1alpha1.Idle && s.State != v1alpha1.Failed
		if !switching && !wasAborted(s.Defragmentation, now) {
			names = append(names, nodes[i].Name)
		}
	}
	slices.Sort(names)
	if n := len(names); n > mostNodes {
		start := d.turn * mostNodes % n
		names = slices.Concat(names[start:], names[:start])[:mostNodes]
	}
	return names
}
