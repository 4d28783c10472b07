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

// Pod is what matters of one that is in the way. It is never a static pod: the kubelet
// runs none that refers to ResourceClaims. So the annotation of mirror pods, which anybody
// can write, proves nothing, and such a pod is asked to leave as any other.
type Pod struct {
	types.NamespacedName
	UID types.UID
	// Ending is when it should have ended at the latest, nil: it was not asked to.
	Ending *time.Time
	// Grace is how long it may take, in seconds.
	Grace int64
	// Finalizers keep it.
	Finalizers []string
	// Over: all of its containers have ended.
	Over bool
	// Refused is what the last try to evict it came to, empty: it was not refused.
	Refused string
}

// podReader reads pods live: the controller keeps none, there are too many.
type podReader struct {
	client.Reader
	node string
	// byUID are the node's, read once; claims, those that are not over by the claims
	// that they have.
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

// byClaim are the node's pods by the claims that they have.
func (p *podReader) byClaim(ctx context.Context) (map[types.NamespacedName][]*corev1.Pod, error) {
	_, err := p.onNode(ctx)
	return p.claims, err
}

// claimsOf are the names of a pod's claims: those that it names, those that were made
// of templates, and the one for its extended resources.
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

// over tells whether all containers of a pod have ended for good.
func over(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// get returns a pod, nil if there is none of that UID any more. A pod that is not on
// the node yet is about to be: its claim is reserved.
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
