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

	"github.com/tranche-dev/tranche/api/v1alpha1"
	"github.com/tranche-dev/tranche/pkg/text"
)

// Holder is a pod, or something else that a claim is reserved for, that holds devices
// of GPUs that change. Pods that came by an extended resource have a claim as all
// others do: the scheduler makes it.
type Holder struct {
	Claim types.NamespacedName
	// Devices are those that are in the way, sorted.
	Devices []string
	// Pod is nil where the claim is reserved for something else, which Other names.
	Pod   *Pod
	Other string
	// Tolerates: the claim tolerates the taint of a switch, so the next pod with such a
	// claim could get a device of the same GPU.
	Tolerates bool
	// Outlives: the claim is not of one pod. A pod that comes in place of this one gets
	// the devices that the claim has, whatever taints they have by then.
	Outlives bool
	// Admin: all of the devices are held by admin access, which takes nothing from
	// others. Such a pod leaves after the others.
	Admin bool
}

// overdue is how long after its time the end of a pod is taken for one that hangs.
const overdue = 5 * time.Second

// mostFinalizers is how many finalizers are named; the rest is counted.
const mostFinalizers = 5

// mostBlockerText is how much is written down of why a pod cannot leave.
const mostBlockerText = 1024

// Text says who is in the way at a time, and why.
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

// Blocker is the holder as a switch's status names it, with why it does not leave. The
// holder is a pod.
func (h *Holder) Blocker(why string) v1alpha1.Blocker {
	return v1alpha1.Blocker{Namespace: h.Pod.Namespace, Name: h.Pod.Name, UID: h.Pod.UID, Message: text.Cut(why, mostBlockerText)}
}

// asked tells whether the pod can be asked to leave, and has not been. With force it is
// asked again if it would take longer than forcedGrace.
func (h *Holder) asked(now time.Time, force bool) bool {
	if h.Pod == nil || h.Pod.Over {
		return false
	}
	return h.Pod.Ending == nil || force && h.Pod.Ending.Sub(now) > forcedGrace
}

// Holders finds who is in the way on GPUs, beside those who hold a device that is kept. A
// claim that nobody has reserved is not: nothing of it is on the node.
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

// claims are those that have devices of the node: those that the cache knows, and those of
// the node's pods that it does not know yet.
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
		c, err := v.drainer.claimNow(ctx, name)
		if err != nil {
			return nil, err
		}
		if c != nil && slices.Contains(NodesOf(c), v.pods.node) {
			claims[name] = c
		}
	}
	return claims, nil
}

// claimNow reads the claim of a pod that is on a node from the API server, where the
// cache has it without devices or not at all: a claim has some before its pod is there,
// so the cache is late. Nil: there is nothing that the cache does not know.
func (d *Drainer) claimNow(ctx context.Context, name types.NamespacedName) (*resourceapi.ResourceClaim, error) {
	var c resourceapi.ResourceClaim
	err := d.Client.Get(ctx, name, &c)
	if err == nil && c.Status.Allocation != nil {
		return nil, nil
	}
	if client.IgnoreNotFound(err) == nil {
		err = d.Reader.Get(ctx, name, &c)
	}
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read ResourceClaim %s, which a pod on node has: %w", name, err)
	}
	return &c, nil
}

func (h *Holder) key() string {
	if h.Pod != nil {
		return h.Pod.String() + " " + h.Claim.String()
	}
	return h.Other + " " + h.Claim.String()
}

// usersOf are those that a claim is reserved for and that are there still, and pods on
// the node that have it: the cache may be late with who has reserved it, and it may be
// reserved for all pods of a group at once.
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
