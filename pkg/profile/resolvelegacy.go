package profile

import (
	"strings"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/strict"
)

// legacy refuses an extended resource that stands for a device which the GPU does not offer.
func (r *resolver) legacy(g *gpu.GPU, path string, resolved Desired) {
	legacy := resolved.legacy()
	switch kind := resolved.Legacy.Kind; {
	case legacy.Kind == legacyNone:
		r.add(path, g, "is %s, and the GPU has partitions of several profiles (%s): name one", kind, strings.Join(resolved.Layout.partitions(), ", "))
	case kind == LegacyPartitionReplica && strings.Contains(legacy.Profile, "+"):
		r.add(path, g, "is %s, and partitions with extra engines (%s) are not shared", kind, legacy.Profile)
	case kind == LegacyReplica:
		if !resolved.Layout.Offers(gpu.Placement{Type: gpu.TypeGPU}) {
			r.add(path, g, "is %s, a share of the whole GPU, which the rule does not offer", LegacyReplica)
		}
	case kind == LegacyPartition && resolved.Legacy.Profile != "":
		has := false
		for _, p := range g.WithMIG(gpu.MIGOn).Placements {
			if p.Type != gpu.TypeGPU && p.Profile == resolved.Legacy.Profile {
				if resolved.Layout.Offers(p) {
					return
				}
				has = true
			}
		}
		if has {
			r.add(path, g, "is %s, which the rule does not offer", resolved.Legacy.Profile)
		}
	}
}

// onePerNode refuses Partition and PartitionReplica if the extended resource would mean different
// things on the GPUs of a vendor. NVIDIA's device plugin refuses such nodes with strategy single.
func (r *resolver) onePerNode(gpus []gpu.GPU, selected []*rule, resolved map[string]Desired) {
	first := map[gpu.Vendor]*gpu.GPU{}
	for i := range gpus {
		g := &gpus[i]
		d := resolved[g.PCIAddress]
		if single := d.Legacy.Profile == "" && (d.Legacy.Kind == LegacyPartition || d.Legacy.Kind == LegacyPartitionReplica); !single {
			continue
		}
		one := first[g.Vendor]
		if one == nil {
			first[g.Vendor] = g
			continue
		}
		// Several profiles on one GPU are refused elsewhere.
		if a, b := resolved[one.PCIAddress].legacy(), d.legacy(); a != b && a.Kind != legacyNone && b.Kind != legacyNone {
			r.add(strict.Key(selected[i].path, "legacyResource"), g, "is %s, which means %s here and %s on GPU %s: name the profile, or partition the GPUs alike",
				d.Legacy.Kind, b, a, one.Name())
		}
	}
}

// String describes it for people.
func (l Legacy) String() string {
	switch l.Kind {
	case LegacyReplica:
		return "a replica of the whole GPU"
	case LegacyPartition:
		return "a partition " + l.Profile
	case LegacyPartitionReplica:
		return "a replica of a partition " + l.Profile
	case legacyNone:
		return "nothing, because the GPU has partitions of several profiles: ask for nvidia.com/mig-<profile> (MIG strategy mixed), or partition the GPU into one profile"
	}
	return "the whole GPU"
}
