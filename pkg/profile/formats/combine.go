package formats

import (
	"fmt"
	"reflect"
	"slices"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/profile"
)

// Combine makes PartitionProfiles for Nodes of which one label says how GPUs are partitioned, and that
// of the device plugin how NVIDIA's are shared. Where the file of one of them is not among the
// documents, a note says what to do.
func Combine(documents []Document) []Document {
	for i := range documents {
		d := &documents[i]
		if d.shared == "" {
			continue
		}
		sharing, err := ObjectName(d.shared)
		base, shared := find(documents, d.Format, d.partitioned), find(documents, DevicePlugin, sharing)
		if err != nil || base == nil || shared == nil {
			d.Notes = []string{fmt.Sprintf("the label %s=%s says how these GPUs are shared, and %s has precedence over both labels: "+
				"convert the Node together with the files that have both configurations, or keep both labels, with formats.devicePlugin of the chart",
				names.LabelDevicePluginConfig, d.shared, names.LabelProfile)}
			continue
		}
		p := Together(base, shared)
		p.Notes = append(p.Notes, fmt.Sprintf("GPUs are partitioned as by %s, and NVIDIA's are shared as by %s", base.Original, shared.Original))
		all := []Profile{p}
		finish(all)
		d.Notes = []string{command(d.node, all[0].Name)}
		d.Profiles, d.Format = all, d.Format+" and "+DevicePlugin
	}
	return documents
}

// Together is a configuration that partitions GPUs as one says and shares NVIDIA's as another one,
// which is of the device plugin. Its error says why they cannot be combined.
func Together(partitioned, shared *Profile) Profile {
	p := Profile{
		Original: partitioned.Original + "_" + shared.Original, Notes: slices.Concat(partitioned.Notes, shared.Notes),
		Spec: v1beta1.PartitionProfileSpec{Rules: combined(partitioned.Spec.Rules, shared.Spec.Rules[0]), Switch: partitioned.Spec.Switch},
	}
	if _, err := profile.FromRules(p.Original, p.Spec.Rules); err != nil {
		return p.Fail(err)
	}
	return p
}

// find is a configuration that can be used; nil: there is none.
func find(documents []Document, format Format, name string) *Profile {
	for i := range documents {
		for j := range documents[i].Profiles {
			if p := &documents[i].Profiles[j]; documents[i].Format == format && p.Name == name && p.Err == nil {
				return p
			}
		}
	}
	return nil
}

// combined are rules in which the GPUs that another rule selects by their vendor are shared as it
// says.
func combined(rules []v1beta1.Rule, sharing v1beta1.Rule) (all []v1beta1.Rule) {
	theirs, rest := sharing.GPUs.Vendor, true
	for _, r := range rules {
		if r.GPUs == nil || reflect.DeepEqual(*r.GPUs, v1beta1.GPUSelector{}) {
			rest = false // No rule may follow one that selects every GPU.
		}
		vendor := ""
		if r.GPUs != nil {
			vendor = r.GPUs.Vendor
		}
		if vendor == "" || vendor == theirs {
			own := *r.DeepCopy()
			if own.GPUs == nil {
				own.GPUs = &v1beta1.GPUSelector{}
			}
			own.GPUs.Vendor, own.Sharing, own.ExtendedResource = theirs, sharing.Sharing.DeepCopy(), sharing.ExtendedResource.DeepCopy()
			dropUnoffered(&own)
			all = append(all, own)
		}
		if vendor != theirs {
			all = append(all, r)
		}
	}
	if rest {
		all = append(all, sharing) // for those that no other rule selects
	}
	return all
}

// dropUnoffered removes from a rule what it says of devices that its GPUs do not offer. A file of the
// device plugin says how whole GPUs and partitions are shared where there are any.
func dropUnoffered(r *v1beta1.Rule) {
	whole, partitions := profile.MIGOffers(r.MIG)
	if !partitions {
		r.Sharing.Partitions = nil
		if shared := r.Sharing.WholeGPUs; shared != nil && !*shared {
			r.Sharing = off()
		}
	}
	if e := r.ExtendedResource; e != nil && !whole {
		replica := e.Device == v1beta1.DeviceGPUReplica
		if replica && r.Sharing.Strategy != v1beta1.MPS || !replica && len(r.MIG.Partitions)+len(r.MIG.Profiles) == 0 {
			r.ExtendedResource = nil
		}
	}
}

// command labels a node with a PartitionProfile.
func command(node, name string) string {
	return fmt.Sprintf("run: kubectl label node %s %s=%s", node, names.LabelProfile, name)
}
