package drain

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/text"
)

// Holder is a pod, or another object that a claim is reserved for, that holds devices of
// GPUs that change. Pods with extended resources have a claim, too: the scheduler creates it.
type Holder struct {
	Claim types.NamespacedName
	// Devices are the devices that it holds of these GPUs, sorted.
	Devices []string
	// Pod is nil where the claim is reserved for something else, which Other names.
	Pod   *Pod
	Other string
	// Tolerates: the claim may tolerate the taint of a switch, so the next pod with such a
	// claim could get a device of the same GPU.
	Tolerates bool
	// Outlives: the claim was not created for one pod. A replacement of the pod gets the
	// claim's devices, whatever their taints.
	Outlives bool
	// Admin: it only monitors these GPUs. Such a pod leaves after the others, and no claim like its
	// own is allocated during a switch.
	Admin bool
}

// overdue is how long after its grace period a pod is reported as stuck.
const overdue = 5 * time.Second

// mostFinalizers is how many finalizers are named; the rest is counted.
const mostFinalizers = 5

// Text describes the holder, and why it has not left by a time.
func (h *Holder) Text(now time.Time) string {
	what := strings.Join(h.Devices, ", ")
	if h.Pod == nil {
		return fmt.Sprintf("%s holds %s for claim %s and cannot be evicted", h.Other, what, h.Claim)
	}
	who := fmt.Sprintf("pod %s (%s)", h.Pod.NamespacedName, what)
	switch {
	case h.Pod.Ending != nil && len(h.Pod.Finalizers) == 0 && now.After(h.Pod.Ending.Add(overdue)):
		return fmt.Sprintf("%s should have been gone by %s: do the node's kubelet and its plugin run, and what do the pod's events say?", who, text.Clock(*h.Pod.Ending))
	case h.Pod.Over:
		return who + " has ended, and its claim is being released"
	case h.Pod.Ending != nil && len(h.Pod.Finalizers) > 0:
		return fmt.Sprintf("%s is ending, and finalizers keep it: %s", who, text.List(h.Pod.Finalizers, mostFinalizers))
	case h.Pod.Ending != nil:
		return fmt.Sprintf("%s is ending, and has %d s for it", who, h.Pod.Grace)
	case h.Pod.Refused != "":
		who += " is not evicted: " + h.Pod.Refused
	}
	if h.Tolerates {
		who += "; its claim tolerates the taint"
	}
	return who
}

// Blocker describes the pod in the status of a switch, with the reason why it does not
// leave.
func (h *Holder) Blocker(why string) v1beta1.Blocker {
	return v1beta1.Blocker{Kind: v1beta1.BlockerPod, Namespace: h.Pod.Namespace, Name: h.Pod.Name, UID: h.Pod.UID, Message: text.Cut(why, v1beta1.MaxListedText)}
}

// asked reports whether to evict the pod. A pod that is being deleted is not evicted again;
// with force it is deleted again if it has longer than forcedGrace left.
func (h *Holder) asked(now time.Time, force bool) bool {
	if h.Pod == nil || h.Pod.Over {
		return false
	}
	return h.Pod.Ending == nil || force && h.Pod.Ending.Sub(now) > forcedGrace
}

// Holders finds the holders of devices of GPUs, except of devices that are kept. Claims that
// are not reserved do not count: nothing of them is on the node.
func (v *View) Holders(ctx context.Context, gpus []string, keeps map[string]bool) ([]Holder, error) {
	claims, err := v.claims(ctx)
	if err != nil {
		return nil, err
	}
	var all []Holder
	for _, c := range claims {
		u := useOf(c, v.pods.node, gpus, keeps)
		if len(u.devices) == 0 {
			continue
		}
		found, err := usersOf(ctx, u, v.pods)
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	for i := range all {
		if all[i].Pod != nil {
			all[i].Pod.Refused = v.drainer.refusals.refused(all[i].Pod.UID)
		}
	}
	slices.SortFunc(all, func(a, b Holder) int { return strings.Compare(a.key(), b.key()) })
	return all, nil
}

// claims returns those with devices of the node: from the cache, and of pods on the node whose
// claims the cache does not have yet.
func (v *View) claims(ctx context.Context) (map[types.NamespacedName]*resourceapi.ResourceClaim, error) {
	claims := map[types.NamespacedName]*resourceapi.ResourceClaim{}
	var found resourceapi.ResourceClaimList
	if err := v.drainer.Client.List(ctx, &found, client.MatchingFields{NodeIndex: v.pods.node}); err != nil {
		return nil, fmt.Errorf("list the ResourceClaims that have devices of node %s: %w", v.pods.node, err)
	}
	for i := range found.Items {
		claims[client.ObjectKeyFromObject(&found.Items[i])] = &found.Items[i]
	}
	there, err := v.pods.byClaim(ctx)
	if err != nil {
		return nil, err
	}
	for name := range there {
		if claims[name] != nil {
			continue
		}
		c, err := v.claimNow(ctx, name)
		if err != nil {
			return nil, err
		}
		if c != nil && slices.Contains(NodesOf(c), v.pods.node) {
			claims[name] = c
		}
	}
	return claims, nil
}

// claimNow reads the claim of a pod on the node from the API server, if the cache has it
// without devices or not at all: claims are allocated before their pods are bound, so the
// cache is late. It returns nil if the cache is up to date.
func (v *View) claimNow(ctx context.Context, name types.NamespacedName) (*resourceapi.ResourceClaim, error) {
	var c resourceapi.ResourceClaim
	err := v.drainer.Client.Get(ctx, name, &c)
	if err == nil && c.Status.Allocation != nil {
		return nil, nil
	}
	if client.IgnoreNotFound(err) == nil {
		err = v.drainer.Reader.Get(ctx, name, &c)
	}
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read ResourceClaim %s of a pod on node %s: %w", name, v.pods.node, err)
	}
	return &c, nil
}

func (h *Holder) key() string {
	if h.Pod != nil {
		return h.Pod.String() + " " + h.Claim.String()
	}
	return h.Other + " " + h.Claim.String()
}

// usersOf returns the objects that a claim is reserved for and that still exist, and the pods on
// the node that refer to it: the cache may be late with reservations, and a claim may be
// reserved for a group of pods.
func usersOf(ctx context.Context, u use, pods *podReader) ([]Holder, error) {
	var all []Holder
	name := client.ObjectKeyFromObject(u.claim)
	holder := Holder{Claim: name, Devices: u.devices, Tolerates: u.tolerates, Admin: u.admin}
	seen := map[types.UID]bool{}
	var users []types.UID
	for _, user := range u.claim.Status.ReservedFor {
		users = append(users, user.UID)
		h := holder
		if user.Resource != "pods" || user.APIGroup != "" {
			h.Other = fmt.Sprintf("%s %s/%s", user.Resource, name.Namespace, user.Name)
			all = append(all, h)
			continue
		}
		seen[user.UID] = true
		pod, err := pods.get(ctx, types.NamespacedName{Namespace: name.Namespace, Name: user.Name}, user.UID)
		if err != nil {
			return nil, err
		}
		if pod != nil {
			h.Pod = pod
			all = append(all, h)
		}
	}
	there, err := pods.byClaim(ctx)
	if err != nil {
		return nil, err
	}
	for _, pod := range there[name] {
		users = append(users, pod.UID)
		if !seen[pod.UID] {
			h := holder
			h.Pod = podOf(pod)
			all = append(all, h)
		}
	}
	outlives := !ofOnePod(u.claim, users)
	for i := range all {
		all[i].Outlives = outlives
	}
	return all, nil
}
