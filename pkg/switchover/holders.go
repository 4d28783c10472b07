package switchover

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/pkg/gpu"
)

// Holder is a pod, or something else that a claim is reserved for, that holds devices
// of cards that change. Pods that came by an extended resource have a claim as all
// others do: the scheduler makes it.
type Holder struct {
	Claim types.NamespacedName
	// Devices are those that are in the way, sorted.
	Devices []string
	// Pod is nil where the claim is reserved for something else, which Other names.
	Pod   *Pod
	Other string
	// Tolerates: the claim tolerates every taint, so a new pod of it may come back.
	Tolerates bool
}

// Pod is what matters of one that is in the way.
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
	// Mirror: the kubelet made it of a file. Its end in the API changes nothing.
	Mirror bool
	// Refused is what the last try to evict it came to, empty: it was not refused.
	Refused string
}

// overdue is how long after its time the end of a pod is taken for one that hangs.
const overdue = 5 * time.Second

// text says who is in the way at a time, and why.
func (h *Holder) text(now time.Time) string {
	what := strings.Join(h.Devices, ", ")
	if h.Pod == nil {
		return fmt.Sprintf("%s holds %s for claim %s and cannot be evicted", h.Other, what, h.Claim)
	}
	text := fmt.Sprintf("pod %s (%s)", h.Pod.NamespacedName, what)
	switch {
	case h.Pod.Ending != nil && len(h.Pod.Finalizers) == 0 && now.After(h.Pod.Ending.Add(overdue)):
		return fmt.Sprintf("%s should have been gone by %s: do the node's kubelet and its plugin run, and what do the pod's events say?", text, clockText(*h.Pod.Ending))
	case h.Pod.Over:
		return text + " has ended, and its claim is being released"
	case h.Pod.Mirror:
		return text + " is a static pod: take its file off the node"
	case h.Pod.Ending != nil && len(h.Pod.Finalizers) > 0:
		return fmt.Sprintf("%s is ending, and finalizers keep it: %s", text, list(h.Pod.Finalizers))
	case h.Pod.Ending != nil:
		return fmt.Sprintf("%s is ending, and has %d s for it", text, h.Pod.Grace)
	case h.Pod.Refused != "":
		text += " is not evicted: " + h.Pod.Refused
	}
	if h.Tolerates {
		text += "; its claim tolerates every taint, so it may come back"
	}
	return text
}

// asked tells whether the pod can be asked to leave, and has not been.
func (h *Holder) asked() bool {
	return h.Pod != nil && h.Pod.Ending == nil && !h.Pod.Over && !h.Pod.Mirror
}

// poolIndex is the name of the index of claims by the pools that they have devices of.
const poolIndex = "pool"

// poolsOf are the pools of ours that a claim has devices of.
func poolsOf(o client.Object) []string {
	c, ok := o.(*resourceapi.ResourceClaim)
	if !ok || c.Status.Allocation == nil {
		return nil
	}
	var pools []string
	for i := range c.Status.Allocation.Devices.Results {
		r := &c.Status.Allocation.Devices.Results[i]
		if r.Driver == gpu.DriverName && !slices.Contains(pools, r.Pool) {
			pools = append(pools, r.Pool)
		}
	}
	return pools
}

// trimClaim leaves of a claim what holders are found by: a cluster may have very many.
func trimClaim(o any) (any, error) {
	c, ok := o.(*resourceapi.ResourceClaim)
	if !ok {
		return o, nil
	}
	out := &resourceapi.ResourceClaim{TypeMeta: c.TypeMeta}
	out.Name, out.Namespace, out.UID, out.ResourceVersion = c.Name, c.Namespace, c.UID, c.ResourceVersion
	if len(poolsOf(c)) == 0 {
		return out, nil
	}
	out.Status.ReservedFor = c.Status.ReservedFor
	out.Status.Allocation = &resourceapi.AllocationResult{}
	for i := range c.Status.Allocation.Devices.Results {
		if r := &c.Status.Allocation.Devices.Results[i]; r.Driver == gpu.DriverName {
			kept := resourceapi.DeviceRequestAllocationResult{Driver: r.Driver, Pool: r.Pool, Device: r.Device, AdminAccess: r.AdminAccess}
			if toleratesAll(r.Tolerations) {
				kept.Tolerations = []resourceapi.DeviceToleration{{Operator: resourceapi.DeviceTolerationOpExists}}
			}
			out.Status.Allocation.Devices.Results = append(out.Status.Allocation.Devices.Results, kept)
		}
	}
	return out, nil
}

// toleratesAll tells whether our taint on a card keeps nothing off.
func toleratesAll(tolerations []resourceapi.DeviceToleration) bool {
	return slices.ContainsFunc(tolerations, func(t resourceapi.DeviceToleration) bool {
		return t.Operator == resourceapi.DeviceTolerationOpExists && (t.Key == "" || t.Key == TaintKey) &&
			(t.Effect == "" || t.Effect == resourceapi.DeviceTaintEffectNoSchedule)
	})
}

// use is what one claim has of the cards that change.
type use struct {
	claim     *resourceapi.ResourceClaim
	devices   []string
	tolerates bool
}

// usesOf finds what a claim has of the pools beside what is kept, and the devices that
// it has by admin access only. It is pure.
func usesOf(c *resourceapi.ResourceClaim, pools map[string]bool, keeps map[string]bool) (u use, monitors []string) {
	u.claim = c
	if c.Status.Allocation == nil {
		return u, nil
	}
	for i := range c.Status.Allocation.Devices.Results {
		r := &c.Status.Allocation.Devices.Results[i]
		switch {
		case r.Driver != gpu.DriverName || !pools[r.Pool] || keeps[r.Device]:
		case r.AdminAccess != nil && *r.AdminAccess:
			monitors = append(monitors, r.Device)
		default:
			u.devices = append(u.devices, r.Device)
			u.tolerates = u.tolerates || toleratesAll(r.Tolerations)
		}
	}
	slices.Sort(u.devices)
	u.devices = slices.Compact(u.devices)
	return u, monitors
}

// holders finds who is in the way on cards of a node. A claim that nobody has reserved
// is not: nothing of it is on the node.
func (r *Reconciler) holders(ctx context.Context, pods *podReader, cards []string, keeps map[string]bool) (all []Holder, monitors []string, err error) {
	pools := map[string]bool{}
	claims := map[types.UID]*resourceapi.ResourceClaim{}
	for _, card := range cards {
		pool := gpu.PoolName(pods.node, card)
		pools[pool] = true
		var found resourceapi.ResourceClaimList
		if err := r.Client.List(ctx, &found, client.MatchingFields{poolIndex: pool}); err != nil {
			return nil, nil, fmt.Errorf("list the ResourceClaims that have devices of card %s: %w", card, err)
		}
		for i := range found.Items {
			claims[found.Items[i].UID] = &found.Items[i]
		}
	}
	for _, c := range claims {
		u, seen := usesOf(c, pools, keeps)
		monitors = append(monitors, seen...)
		if len(u.devices) == 0 {
			continue
		}
		found, err := r.usersOf(ctx, u, pods)
		if err != nil {
			return nil, nil, err
		}
		all = append(all, found...)
	}
	slices.SortFunc(all, func(a, b Holder) int { return strings.Compare(a.key(), b.key()) })
	slices.Sort(monitors)
	return all, slices.Compact(monitors), nil
}

func (h *Holder) key() string {
	if h.Pod != nil {
		return h.Pod.String() + " " + h.Claim.String()
	}
	return h.Other + " " + h.Claim.String()
}

// usersOf are those that a claim is reserved for and that are there still.
func (r *Reconciler) usersOf(ctx context.Context, u use, pods *podReader) ([]Holder, error) {
	var all []Holder
	for _, user := range u.claim.Status.ReservedFor {
		h := Holder{
			Claim:   types.NamespacedName{Namespace: u.claim.Namespace, Name: u.claim.Name},
			Devices: u.devices, Tolerates: u.tolerates,
		}
		if user.Resource != "pods" || user.APIGroup != "" {
			h.Other = fmt.Sprintf("%s %s/%s", user.Resource, u.claim.Namespace, user.Name)
			all = append(all, h)
			continue
		}
		pod, err := pods.get(ctx, types.NamespacedName{Namespace: u.claim.Namespace, Name: user.Name}, user.UID)
		if err != nil {
			return nil, err
		}
		if pod != nil {
			h.Pod = pod
			h.Pod.Refused = r.evictions.refused(pod.UID)
			all = append(all, h)
		}
	}
	return all, nil
}

// podReader reads pods live: the controller keeps none, there are too many.
type podReader struct {
	client.Reader
	node string
	// byUID are the node's, read once.
	byUID map[types.UID]*corev1.Pod
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
	for i := range pods.Items {
		p.byUID[pods.Items[i].UID] = &pods.Items[i]
	}
	return p.byUID, nil
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
		return nil, fmt.Errorf("read pod %s, which holds a card: %w", name, err)
	}
	return podOf(&pod), nil
}

func podOf(pod *corev1.Pod) *Pod {
	out := &Pod{
		NamespacedName: client.ObjectKeyFromObject(pod), UID: pod.UID, Finalizers: pod.Finalizers,
		Over: pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed,
	}
	_, out.Mirror = pod.Annotations[corev1.MirrorPodAnnotationKey]
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
