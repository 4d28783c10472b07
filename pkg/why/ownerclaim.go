package why

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/pkg/cluster"
	"github.com/tranche-dev/tranche/pkg/lists"
	"github.com/tranche-dev/tranche/pkg/text"
)

const maxNamed = 4

// explainClaim explains what a claim waits for.
func (in *OwnerInput) explainClaim() *OwnerExplanation {
	c := in.Claim
	e := &OwnerExplanation{Namespace: c.Namespace, Kind: KindResourceClaim, Name: c.Name}
	users := in.users(c)
	e.Groups = grouped(users)
	names := lists.Map(users, func(p *corev1.Pod) string { return p.Name })
	switch {
	case c.DeletionTimestamp != nil && len(c.Status.ReservedFor) > 0:
		e.say(Terminating, "%s is being deleted, when its pods have ended: %s.", e.who(), text.List(reservedFor(c), maxNamed))
	case c.DeletionTimestamp != nil:
		e.say(Terminating, "%s is being deleted.", e.who())
	case c.Status.Allocation != nil:
		e.say(Allocated, "%s has %s", e.who(), devicesOf(c))
		if users := reservedFor(c); len(users) > 0 {
			e.Summary += " for " + text.List(users, maxNamed) + "."
			return e.withUnread(in)
		}
		e.Summary += ", and no pod uses it. The devices are released when the last pod that used them is gone; that takes seconds."
	case len(names) > 0:
		e.say(Waiting, "%s has no devices yet: they are allocated when a pod is scheduled that uses it. Pods: %s.", e.who(), text.List(names, maxNamed))
	case has(in.Unread, ResourcePods):
		e.say(Unknown, "%s has no devices. They are allocated when a pod is scheduled that uses it. Which pods use it cannot be determined.", e.who())
	default:
		e.say(Unused, "%s has no devices, because no pod uses it: they are allocated when a pod is scheduled.", e.who())
		e.remedy("create a pod with the claim in spec.resourceClaims and in resources.claims of a container.", "")
	}
	return e.withUnread(in)
}

func (e *OwnerExplanation) withUnread(in *OwnerInput) *OwnerExplanation {
	e.Unread = lack(in.Unread, e.State, nil)
	return e
}

// users returns the pods that name a claim or own it.
func (in *OwnerInput) users(c *resourceapi.ResourceClaim) []*corev1.Pod {
	var out []*corev1.Pod
	for i := range in.Pods {
		p := &in.Pods[i]
		names := slices.ContainsFunc(p.Spec.ResourceClaims, func(r corev1.PodResourceClaim) bool { return ptr.Deref(r.ResourceClaimName, "") == c.Name })
		has := slices.ContainsFunc(p.Status.ResourceClaimStatuses, func(s corev1.PodResourceClaimStatus) bool { return ptr.Deref(s.ResourceClaimName, "") == c.Name })
		if names || has || metav1.IsControlledBy(c, p) {
			out = append(out, p)
		}
	}
	slices.SortFunc(out, older)
	return out
}

func reservedFor(c *resourceapi.ResourceClaim) []string {
	return lists.Map(c.Status.ReservedFor, func(r resourceapi.ResourceClaimConsumerReference) string {
		return cluster.ConsumerOf(r).String()
	})
}

func devicesOf(c *resourceapi.ResourceClaim) string {
	out := lists.Map(c.Status.Allocation.Devices.Results, func(r resourceapi.DeviceRequestAllocationResult) string {
		return fmt.Sprintf("%s of %s", r.Device, r.Pool)
	})
	if len(out) == 0 {
		return "been allocated without devices"
	}
	return strings.Join(out, ", ")
}
