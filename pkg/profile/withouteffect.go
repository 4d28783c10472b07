package profile

import (
	"slices"

	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/strict"
)

// MIGOffers reports whether GPUs with these settings, which can be nil, offer the whole GPU, and partitions.
func MIGOffers(m *v1beta1.MIG) (whole, partitions bool) {
	if m == nil {
		return true, true
	}
	return m.Mode != v1beta1.MIGStatic && m.Mode != v1beta1.MIGNoPartitions && ptr.Deref(m.WholeGPUs, true), m.Mode != v1beta1.MIGDisabled && m.Mode != v1beta1.MIGNoPartitions
}

// withoutEffect refuses settings of shares that no GPU of the rule offers.
func (c *compiler) withoutEffect(path string, r *v1beta1.Rule, g Desired) {
	sharing := strict.Key(path, "sharing")
	whole, partitions := MIGOffers(r.MIG)
	if !whole && g.ExtendedResource.Device == v1beta1.DeviceGPUReplica {
		c.Add(strict.Key(strict.Key(path, "extendedResource"), "device"), "is GPUReplica, a share of the whole GPU, which mig does not offer")
	}
	if (g.Strategy == gpu.MPS || g.TimeSlice != "") && (!whole || !g.Shared) {
		c.Add(sharing, "has strategy MPS or a timeSlice, which are for shares of whole GPUs, and sharing.wholeGPUs or mig excludes these: leave them out")
	}
	own := g.Replicas != Default().Replicas || r.Sharing != nil && r.Sharing.MaxClients != nil || g.FailRequestsGreaterThanOne
	if own && !g.Shared && len(g.Partitions) == 0 && g.ExtendedResource.Device != v1beta1.DeviceAutoReplica {
		c.Add(sharing, "has replicas, maxClients or failRequestsGreaterThanOne, and offers no shares: set wholeGPUs or partitions, or leave them out")
	}
	if !partitions && slices.ContainsFunc(g.Partitions, func(p string) bool { return vendorOf(p) == gpu.NVIDIA }) {
		c.Add(sharing, "partitions.profiles has MIG profiles, and mig.mode excludes partitions: leave them out")
	}
}
