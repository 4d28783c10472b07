package karpenter

import (
	"unique"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
)

// Templates are the same slices as a cloud provider returns them in
// InstanceType.DynamicResources.ResourceSliceTemplates. Each instance type needs another name of
// the pool (`kubectl tranche templates --node-name`): Karpenter compares devices by it.
func Templates(slices []resourceapi.ResourceSlice) []*cloudprovider.ResourceSliceTemplate {
	var all []*cloudprovider.ResourceSliceTemplate
	for _, slice := range slices {
		t := &cloudprovider.ResourceSliceTemplate{
			Driver:         unique.Make(slice.Spec.Driver),
			Pool:           cloudprovider.ResourcePool{Name: unique.Make(slice.Spec.Pool.Name)},
			SharedCounters: slice.Spec.SharedCounters,
		}
		for _, d := range slice.Spec.Devices {
			t.Devices = append(t.Devices, cloudprovider.Device{
				Name:                     unique.Make(d.Name),
				Attributes:               d.Attributes,
				Capacity:                 d.Capacity,
				AllowMultipleAllocations: ptr.Deref(d.AllowMultipleAllocations, false),
				ConsumesCounters:         d.ConsumesCounters,
			})
		}
		all = append(all, t)
	}
	return all
}
