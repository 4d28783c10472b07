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
func (p *Planner) waiting(ctx context.Context, pod *corev1.Pod) (*guest, *Refusal) {
	if pod.Spec.NodeName != "" || pod.DeletionTimestamp != nil || len(pod.Spec.SchedulingGates) > 0 || pod.Status.Phase != corev1.PodPending {
		return nil, refuse(NotWaiting, "%s does not wait for a node.", nameOf(pod))
	}
	g := &guest{pod: pod, requests: requests(pod)}
	if refusal := p.wanted(g); refusal != nil {
		return nil, refusal
	}
	if refusal := p.asksForOurs(ctx, g); refusal != nil {
		return nil, refusal
	}
	for _, check := range []func(*guest) string{p.addReach, elsewhere, p.avoided} {
		if why := check(g); why != "" {
			return nil, refuse(Unsupported, "For %s no room is made: %s.", g, why)
		}
	}
	return g, nil
}

// wanted finds the claims of a waiting pod, or the templates that they will be made from.
func (p *Planner) wanted(g *guest) *Refusal {
	for i := range g.pod.Spec.ResourceClaims {
		c := &g.pod.Spec.ResourceClaims[i]
		var claim *resourceapi.ResourceClaim
		name, _, err := resourceclaim.Name(g.pod, c)
		switch {
		case err == nil && name == nil:
			continue // none is needed
		case err == nil:
			claim = p.claims[types.NamespacedName{Namespace: g.pod.Namespace, Name: *name}]
		case c.ResourceClaimTemplateName != nil:
			claim = p.fromTemplate(g.pod, c)
		}
		switch {
		case claim == nil:
			return refuse(ClaimMissing, "The claim %s of %s does not exist, or its template does not.", c.Name, g)
		case claim.Status.Allocation != nil:
			return refuse(Unsupported, "For %s no room is made: its claim %s is allocated, so it must run where that is.", g, claim.Name)
		}
		g.claims = append(g.claims, claim)
	}
	p.addExtended(g)
	return nil
}

// asksForOurs refuses a pod that devices of Tranche do not serve.
func (p *Planner) asksForOurs(ctx context.Context, g *guest) *Refusal {
	ours := false
	for _, choice := range choices(g.claims) {
		if p.cluster.DeviceClasses[choice.Class] == nil {
			return refuse(ClaimMissing, "%s asks for the DeviceClass %s, which does not exist.", g, choice.Class)
		}
		ours = ours || p.cluster.Serving(ctx, choice.Class, choice.Selectors) != cluster.Others
	}
	if !ours {
		return refuse(NoDevices, "%s does not ask for devices of Tranche.", g)
	}
	return nil
}

// choices are what would satisfy the requests of claims.
func choices(claims []*resourceapi.ResourceClaim) (out []demand.Choice) {
	for _, c := range claims {
		for _, r := range c.Spec.Devices.Requests {
			out = slices.Concat(out, demand.Choices(r))
		}
	}
	return out
}

// single are the choices of a pod that asks for one device, nil if it asks for more.
func (g *guest) single() []demand.Choice {
	if len(g.claims) != 1 || len(g.claims[0].Spec.Devices.Requests) != 1 {
		return nil
	}
	all := choices(g.claims)
	if slices.ContainsFunc(all, func(c demand.Choice) bool { return c.All || c.Count != 1 || c.AdminAccess }) {
		return nil
	}
	return all
}
