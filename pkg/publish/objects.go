package publish

import (
	"fmt"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/api/names"
)

// Objects returns the ResourceSlices that the resourceslice controller creates when a node's
// driver publishes slices for the first time. They have no UIDs, and a number instead of the
// random end of a name.
func Objects(driver, node string, slices []Slice) []resourceapi.ResourceSlice {
	all := make([]resourceapi.ResourceSlice, len(slices))
	for i, slice := range slices {
		prefix := fmt.Sprintf("%05x-%s-%s-", i, driver, node)
		all[i] = resourceapi.ResourceSlice{
			TypeMeta: metav1.TypeMeta{APIVersion: resourceapi.SchemeGroupVersion.String(), Kind: "ResourceSlice"},
			ObjectMeta: metav1.ObjectMeta{
				Name:         fmt.Sprintf("%s%05d", prefix, i),
				GenerateName: prefix,
				OwnerReferences: []metav1.OwnerReference{{
					APIVersion: "v1", Kind: "Node", Name: node, Controller: ptr.To(true),
				}},
			},
			Spec: resourceapi.ResourceSliceSpec{
				Driver:         driver,
				NodeName:       ptr.To(node),
				Pool:           resourceapi.ResourcePool{Name: names.PoolName(node), Generation: 1, ResourceSliceCount: int64(len(slices))},
				Devices:        slice.Devices,
				SharedCounters: slice.SharedCounters,
			},
		}
	}
	return all
}
