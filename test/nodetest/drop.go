package nodetest

import (
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"

	"github.com/tranche-dev/tranche/test/clientfake"
)

// OnSliceWrite shows each ResourceSlice that is written, before it is. What is changed in it is
// stored so; an error refuses it.
func OnSliceWrite(client *fake.Clientset, see func(*resourceapi.ResourceSlice) error) {
	clientfake.React(&client.Fake, "*", "resourceslices", func(action k8stesting.Action) (bool, runtime.Object, error) {
		if write, ok := action.(interface{ GetObject() runtime.Object }); ok {
			if slice, ok := write.GetObject().(*resourceapi.ResourceSlice); ok {
				if err := see(slice); err != nil {
					return true, nil, err
				}
			}
		}
		return false, nil, nil
	})
}

// DropCounters takes from a slice what an API server with DRAPartitionableDevices off drops.
func DropCounters(slice *resourceapi.ResourceSlice) error {
	slice.Spec.SharedCounters = nil
	for i := range slice.Spec.Devices {
		slice.Spec.Devices[i].ConsumesCounters = nil
	}
	return nil
}
