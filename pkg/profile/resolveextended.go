package profile

import (
	"slices"
	"strings"

	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/strict"
)

// extendedResource refuses an extended resource that stands for a device which the GPU does not offer.
func (r *resolver) extendedResource(g *gpu.GPU, path string, resolved Desired) {
	own, meaning := resolved.ExtendedResource, resolved.meaning()
	whole := resolved.Layout.Offers(gpu.Placement{Type: gpu.TypeGPU})
	device := strict.Key(path, "device")
	switch {
	case meaning.Device == noDevice:
		r.add(device, g, "is %s, and the GPU has partitions of several profiles (%s): use device Partition with one of them", own.Device, strings.Join(resolved.Layout.partitions(), ", "))
	case own.Device == v1beta1.DeviceAutoReplica && strings.Contains(meaning.Profile, "+"):
		r.add(device, g, "is %s, and partitions with extra engines (%s) are not shared", own.Device, meaning.Profile)
	case meaning.Device == v1beta1.DeviceAutoReplica:
		if slices.Contains(resolved.Partitions, meaning.Profile) && !slices.Contains(resolved.PartitionBases, gpu.ByFraction) {
			r.add(device, g, "is AutoReplica, a share by fraction: add Fraction to sharing.partitions.units")
		}
	case auto(own) && meaning.Device != v1beta1.DevicePartition && !whole:
		r.add(device, g, "is %s, which means %s here, and the rule does not offer it: use device Partition, or leave extendedResource out", own.Device, meaningText(meaning))
	case own.Device == v1beta1.DeviceAutoReplica && !resolved.Shared:
		r.add(device, g, "is %s, which means %s here, and sharing.wholeGPUs is false: there are no replicas", own.Device, meaningText(meaning))
	case own.Device == v1beta1.DeviceGPUReplica && !whole:
		r.add(device, g, "is %s, a share of the whole GPU, which the rule does not offer", own.Device)
	case own.Profile != "":
		has := false
		for _, p := range g.WithMIG(gpu.MIGOn).Placements {
			if p.Type != gpu.TypeGPU && p.Profile == own.Profile {
				if resolved.Layout.Offers(p) {
					return
				}
				has = true
			}
		}
		if has {
			r.add(strict.Key(path, "profile"), g, "is %s, which the rule does not offer", own.Profile)
		}
	}
}

// onePerNode refuses Auto and AutoReplica if the extended resource would mean different
// things on the GPUs of a vendor. NVIDIA's device plugin refuses such nodes with strategy single.
func (r *resolver) onePerNode(gpus []gpu.GPU, selected []*rule, resolved map[string]Desired) {
	first := map[gpu.Vendor]*gpu.GPU{}
	for i := range gpus {
		g := &gpus[i]
		d := resolved[g.PCIAddress]
		own := d.ExtendedResource
		if !auto(own) {
			continue
		}
		one := first[g.Vendor]
		if one == nil {
			first[g.Vendor] = g
			continue
		}
		// Several profiles on one GPU are refused elsewhere.
		if a, b := resolved[one.PCIAddress].meaning(), d.meaning(); a != b && a.Device != noDevice && b.Device != noDevice {
			r.add(strict.Key(strict.Key(selected[i].path, "extendedResource"), "device"), g, "is %s, which means %s here and %s on GPU %s: use device Partition, or partition the GPUs alike",
				own.Device, meaningText(b), meaningText(a), one.Name())
		}
	}
}

// meaningText describes what an extended resource means, for people.
func meaningText(r v1beta1.ExtendedResource) string {
	switch r.Device {
	case v1beta1.DeviceGPUReplica:
		return "a replica of the whole GPU"
	case v1beta1.DevicePartition:
		return "a partition " + r.Profile
	case v1beta1.DeviceAutoReplica:
		return "a replica of a partition " + r.Profile
	case noDevice:
		return "nothing, because the GPU has partitions of several profiles: ask for nvidia.com/mig-<profile> (MIG strategy mixed), or partition the GPU into one profile"
	}
	return "the whole GPU"
}
