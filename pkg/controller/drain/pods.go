package drain

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Pod is a pod that holds a device. It is never a static pod: the kubelet runs none that
// refers to ResourceClaims. The annotation of mirror pods, which anybody can set, is
// therefore ignored.
type Pod struct {
	types.NamespacedName
	UID types.UID
	// Ending is the end of its grace period, nil if it is not being deleted.
	Ending *time.Time
	// Grace is its grace period in seconds.
	Grace int64
	// Finalizers delay its deletion.
	Finalizers []string
	// Over: all of its containers have ended.
	Over bool
	// Refused is why its last eviction was refused, empty if it was not.
	Refused string
}

// podReader reads pods from the API server: there are too many to cache.
type podReader struct {
	client.Reader
	node string
	// byUID are the pods of the node, read once. claims are those that have not ended, by
	// their claims.
	byUID  map[types.UID]*corev1.Pod
	claims map[types.NamespacedName][]*corev1.Pod
}

func (p *podReader) onNode(ctx context.Context) (map[types.UID]*corev1.Pod, error) {
	if p.byUID != nil {
		return p.byUID, nil
	}
	var pods corev1.PodList
	if err := p.List(ctx, &pods, client.MatchingFields{"spec.nodeName": p.node}); err != nil {
		return nil, fmt.Errorf("list the pods of node %s: %w", p.node, err)
	}
	p.byUID = make(map[types.UID]*corev1.Pod, len(pods.Items))
	p.claims = map[types.NamespacedName][]*corev1.Pod{}
	for i := range pods.Items {
		pod := &pods.Items[i]
		p.byUID[pod.UID] = pod
		for _, claim := range claimsOf(pod) {
			if !over(pod) {
				name := types.NamespacedName{Namespace: pod.Namespace, Name: claim}
				p.claims[name] = append(p.claims[name], pod)
			}
		}
	}
	return p.byUID, nil
}

// byClaim returns the pods of the node that have not ended, by their claims.
func (p *podReader) byClaim(ctx context.Context) (map[types.NamespacedName][]*corev1.Pod, error) {
	_, err := p.onNode(ctx)
	return p.claims, err
}

// claimsOf returns the names of a pod's claims: those that it names, those created from
// templates, and the one for its extended resources.
func claimsOf(pod *corev1.Pod) []string {
	var names []string
	for i := range pod.Spec.ResourceClaims {
		if name := pod.Spec.ResourceClaims[i].ResourceClaimName; name != nil {
			names = append(names, *name)
		}
	}
	for i := range pod.Status.ResourceClaimStatuses {
		if name := pod.Status.ResourceClaimStatuses[i].ResourceClaimName; name != nil {
			names = append(names, *name)
		}
	}
	if s := pod.Status.ExtendedResourceClaimStatus; s != nil {
		names = append(names, s.ResourceClaimName)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// over reports whether a pod has succeeded or failed.
func over(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// get returns a pod, nil if none has that UID any more. A pod that is not on the node yet
// will be, because its claim is reserved.
func (p *podReader) get(ctx context.Context, name types.NamespacedName, uid types.UID) (*Pod, error) {
	there, err := p.onNode(ctx)
	if err != nil {
		return nil, err
	}
	if pod := there[uid]; pod != nil {
		return podOf(pod), nil
	}
	var pod corev1.Pod
	err = p.Get(ctx, name, &pod)
	if apierrors.IsNotFound(err) || err == nil && pod.UID != uid {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read pod %s, which holds a GPU: %w", name, err)
	}
	return podOf(&pod), nil
}

func podOf(pod *corev1.Pod) *Pod {
	out := &Pod{
		NamespacedName: client.ObjectKeyFromObject(pod), UID: pod.UID, Finalizers: pod.Finalizers,
		Over: over(pod),
	}
	if pod.DeletionTimestamp != nil {
		out.Ending = &pod.DeletionTimestamp.Time
	}
	if g := pod.DeletionGracePeriodSeconds; g != nil {
		out.Grace = *g
	} else if g := pod.Spec.TerminationGracePeriodSeconds; g != nil {
		out.Grace = *g
	}
	return out
}
