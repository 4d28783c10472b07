package cluster

import (
	"cmp"
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/tranche-dev/tranche/pkg/allocation"
	"github.com/tranche-dev/tranche/pkg/lists"
)

// waiting lists the claims and pods that wait for a device of ours.
func (c *Cluster) waiting(ctx context.Context, namespace string) []Waiting {
	known := map[string]bool{}
	isOurs := func(class string) bool {
		if _, ok := known[class]; !ok {
			known[class] = c.IsOurs(ctx, class)
		}
		return known[class]
	}
	resources := extendedResources(c.Classes, isOurs)
	inScope := func(of string) bool { return namespace == "" || namespace == of }

	var out []Waiting
	for _, claim := range c.Claims {
		if claim.Status.Allocation != nil || claim.DeletionTimestamp != nil || !inScope(claim.Namespace) || !asksFor(claim, isOurs) {
			continue
		}
		w := Waiting{Namespace: claim.Namespace, Claim: claim.Name, Pod: podOf(claim, c.PendingPods), Since: claim.CreationTimestamp.Time}
		// A claim without a pod does not wait for a GPU.
		if w.Pod == "" && c.PodsKnown {
			continue
		}
		if p := lists.Find(c.PendingPods, func(p *corev1.Pod) bool { return p.Namespace == w.Namespace && p.Name == w.Pod }); p != nil {
			w.of(p)
		}
		out = append(out, w)
	}
	for i := range c.PendingPods {
		p := &c.PendingPods[i]
		if inScope(p.Namespace) && p.DeletionTimestamp == nil && usesResource(*p, resources) {
			w := Waiting{Namespace: p.Namespace, Pod: p.Name}
			w.of(p)
			out = append(out, w)
		}
	}
	slices.SortFunc(out, func(a, b Waiting) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Claim, b.Claim), cmp.Compare(a.Pod, b.Pod))
	})
	return out
}

// of adds what is known of the pod.
func (w *Waiting) of(p *corev1.Pod) {
	w.Since = p.CreationTimestamp.Time
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status != corev1.ConditionTrue {
			w.Scheduler = c.Message
		}
	}
}

// extendedResources returns the resources that stand for the devices of some classes.
func extendedResources(classes []resourceapi.DeviceClass, isOurs func(string) bool) map[corev1.ResourceName]bool {
	out := map[corev1.ResourceName]bool{}
	for i := range classes {
		class := &classes[i]
		if !isOurs(class.Name) {
			continue
		}
		for _, name := range allocation.ExtendedResources(class) {
			out[corev1.ResourceName(name)] = true
		}
	}
	return out
}

func asksFor(c resourceapi.ResourceClaim, isOurs func(string) bool) bool {
	for _, r := range c.Spec.Devices.Requests {
		if r.Exactly != nil && isOurs(r.Exactly.DeviceClassName) {
			return true
		}
		for _, s := range r.FirstAvailable {
			if isOurs(s.DeviceClassName) {
				return true
			}
		}
	}
	return false
}

// podOf names the pod that waits for a claim: its owner if it was created from a template, or the
// first pending pod that refers to it.
func podOf(c resourceapi.ResourceClaim, pending []corev1.Pod) string {
	for _, o := range c.OwnerReferences {
		if o.Kind == "Pod" {
			return o.Name
		}
	}
	var names []string
	for _, p := range pending {
		named := slices.ContainsFunc(p.Spec.ResourceClaims, func(r corev1.PodResourceClaim) bool {
			return r.ResourceClaimName != nil && *r.ResourceClaimName == c.Name
		})
		// That of a PodGroup was created from a template, for all its pods.
		uses := named || slices.ContainsFunc(p.Status.ResourceClaimStatuses, func(s corev1.PodResourceClaimStatus) bool {
			return s.ResourceClaimName != nil && *s.ResourceClaimName == c.Name
		})
		if uses && p.Namespace == c.Namespace {
			names = append(names, p.Name)
		}
	}
	if len(names) == 0 {
		return ""
	}
	return slices.Min(names)
}

func usesResource(p corev1.Pod, ours map[corev1.ResourceName]bool) bool {
	for _, containers := range [][]corev1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for _, c := range containers {
			for name, quantity := range c.Resources.Requests {
				if ours[name] && !quantity.IsZero() {
					return true
				}
			}
		}
	}
	return false
}
