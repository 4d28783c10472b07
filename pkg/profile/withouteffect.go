package profile

import (
	"slices"

	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/strict"
)

// withoutEffect refuses settings of shares that no GPU of the rule offers.
func (c *compiler) withoutEffect(path string, r *v1beta1.Rule, g Desired) {
	sharing, m := strict.Key(path, "sharing"), r.MIG
	noWhole := m != nil && (m.Mode == v1beta1.MIGStatic || m.Mode == v1beta1.MIGNoPartitions || m.WholeGPUs != nil && !*m.WholeGPUs)
	if noWhole && g.ExtendedResource.Device == v1beta1.DeviceGPUReplica {
		c.Add(strict.Key(strict.Key(path, "extendedResource"), "device"), "is GPUReplica, a share of the whole GPU, which mig does not offer")
	}
	if (g.Strategy == gpu.MPS || g.TimeSlice != "") && (noWhole || !g.Shared) {
		c.Add(sharing, "has strategy MPS or a timeSlice, which are for shares of whole GPUs, and sharing.wholeGPUs or mig excludes these: leave them out")
	}
	own := g.Replicas != Default().Replicas || r.Sharing != nil && r.Sharing.MaxClients != nil || g.FailRequestsGreaterThanOne
	if own && !g.Shared && len(g.Partitions) == 0 && g.ExtendedResource.Device != v1beta1.DeviceAutoReplica {
		c.Add(sharing, "has replicas, maxClients or failRequestsGreaterThanOne, and offers no shares: set wholeGPUs or partitions, or leave them out")
	}
	noPartitions := m != nil && (m.Mode == v1beta1.MIGDisabled || m.Mode == v1beta1.MIGNoPartitions)
	if noPartitions && slices.ContainsFunc(g.Partitions, func(p string) bool { return vendorOf(p) == gpu.NVIDIA }) {
		c.Add(sharing, "partitions.profiles has MIG profiles, and mig.mode excludes partitions: leave them out")
	}
}
