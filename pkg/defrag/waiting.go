package defrag

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/resourceclaim"

	"github.com/tranche-dev/tranche/pkg/cluster"
	"github.com/tranche-dev/tranche/pkg/why/demand"
)

// waiting describes a pod that waits for devices.
func (p *Planner) waiting(ctx context.Context, pod *corev1.Pod) (*podInfo, *Refusal) {
	if pod.Spec.NodeName != "" || pod.DeletionTimestamp != nil || len(pod.Spec.SchedulingGates) > 0 || pod.Status.Phase != corev1.PodPending {
		return nil, refuse(NotWaiting, "Pod %s does not wait for a node.", nameOf(pod))
	}
	info := newPodInfo(pod)
	if refusal := p.addClaims(info); refusal != nil {
		return nil, refusal
	}
	if refusal := p.checkClasses(ctx, info); refusal != nil {
		return nil, refusal
	}
	for _, check := range []func(*podInfo) string{p.addVolumes, unsupportedConstraint, p.keptAway} {
		if why := check(info); why != "" {
			return nil, refuse(Unsupported, "Plans are not made for pod %s: %s.", info, why)
		}
	}
	return info, nil
}

// addClaims finds the claims of a waiting pod, or makes them from their templates.
func (p *Planner) addClaims(pod *podInfo) *Refusal {
	for i := range pod.Spec.ResourceClaims {
		c := &pod.Spec.ResourceClaims[i]
		var claim *resourceapi.ResourceClaim
		name, _, err := resourceclaim.Name(pod.Pod, c)
		switch {
		case err == nil && name == nil:
			continue // none is needed
		case err == nil:
			claim = p.claims[types.NamespacedName{Namespace: pod.Namespace, Name: *name}]
		case c.ResourceClaimTemplateName != nil:
			claim = p.claimFromTemplate(pod.Pod, c)
		}
		switch {
		case claim == nil:
			return refuse(ClaimMissing, "The ResourceClaim for %s of pod %s does not exist, or its ResourceClaimTemplate does not.", c.Name, pod)
		case claim.Status.Allocation != nil:
			return refuse(Unsupported, "Plans are not made for pod %s: its ResourceClaim %s is already allocated.", pod, claim.Name)
		}
		pod.claims = append(pod.claims, claim)
	}
	p.addExtended(pod)
	return nil
}

// checkClasses refuses a pod whose DeviceClasses do not exist, or that devices of Tranche cannot serve.
func (p *Planner) checkClasses(ctx context.Context, pod *podInfo) *Refusal {
	served := false
	for _, choice := range choices(pod.claims) {
		if p.cluster.DeviceClasses[choice.Class] == nil {
			return refuse(ClaimMissing, "Pod %s requests the DeviceClass %s, which does not exist.", pod, choice.Class)
		}
		served = served || p.cluster.Serving(ctx, choice.Class, choice.Selectors) != cluster.Others
	}
	if !served {
		return refuse(NoDevices, "Pod %s requests no devices of Tranche.", pod)
	}
	return nil
}

// choices returns what would satisfy the requests of claims.
func choices(claims []*resourceapi.ResourceClaim) (out []demand.Choice) {
	for _, c := range claims {
		for _, r := range c.Spec.Devices.Requests {
			out = slices.Concat(out, demand.Choices(r))
		}
	}
	return out
}

// oneDevice returns the choices of a pod that requests one device, nil if it requests more.
func (pod *podInfo) oneDevice() []demand.Choice {
	if len(pod.claims) != 1 || len(pod.claims[0].Spec.Devices.Requests) != 1 {
		return nil
	}
	all := choices(pod.claims)
	if slices.ContainsFunc(all, func(c demand.Choice) bool { return c.All || c.Count != 1 || c.AdminAccess }) {
		return nil
	}
	return all
}
