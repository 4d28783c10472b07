package publish

import (
	"fmt"
	"maps"
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/dynamic-resource-allocation/resourceslice"
	"k8s.io/utils/ptr"
)

// Objects returns the ResourceSlices that the resourceslice controller creates when a node's
// driver publishes resources for the first time. They have no UIDs, and a number instead of the
// random end of a name.
func Objects(driver, node string, resources resourceslice.DriverResources) []resourceapi.ResourceSlice {
	var all []resourceapi.ResourceSlice
	for _, pool := range slices.Sorted(maps.Keys(resources.Pools)) {
		published := resources.Pools[pool].Slices
		for i, slice := range published {
			prefix := fmt.Sprintf("%05x-%s-%s-", i, driver, node)
			all = append(all, resourceapi.ResourceSlice{
				TypeMeta: metav1.TypeMeta{APIVersion: resourceapi.SchemeGroupVersion.String(), Kind: "ResourceSlice"},
				ObjectMeta: metav1.ObjectMeta{
					Name:         fmt.Sprintf("%s%05d", prefix, len(all)),
					GenerateName: prefix,
					OwnerReferences: []metav1.OwnerReference{{
						APIVersion: "v1", Kind: "Node", Name: node, Controller: ptr.To(true),
					}},
				},
				Spec: resourceapi.ResourceSliceSpec{
					Driver:                 driver,
					NodeName:               ptr.To(node),
					Pool:                   resourceapi.ResourcePool{Name: pool, Generation: 1, ResourceSliceCount: int64(len(published))},
					Devices:                slice.Devices,
					SharedCounters:         slice.SharedCounters,
					PerDeviceNodeSelection: slice.PerDeviceNodeSelection,
					PartitionTypeAttribute: slice.PartitionTypeAttribute,
					SkipNodeOperations:     slice.SkipNodeOperations,
				},
			})
		}
	}
	return all
}
