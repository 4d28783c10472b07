package nodetest

import (
	"sync/atomic"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"
)

// DropCounters makes the API server one with DRAPartitionableDevices off.
func DropCounters(client *fake.Clientset) {
	var off atomic.Bool
	off.Store(true)
	DropCountersWhen(client, &off)
}

// DropCountersWhen makes it one whose gate is off once off is true. It must be
// called before anybody talks to the server.
func DropCountersWhen(client *fake.Clientset, off *atomic.Bool) {
	client.PrependReactor("*", "resourceslices", func(action k8stesting.Action) (bool, runtime.Object, error) {
		if !off.Load() {
			return false, nil, nil
		}
		if write, ok := action.(interface{ GetObject() runtime.Object }); ok {
			if slice, ok := write.GetObject().(*resourceapi.ResourceSlice); ok {
				slice.Spec.SharedCounters = nil
				for i := range slice.Spec.Devices {
					slice.Spec.Devices[i].ConsumesCounters = nil
				}
			}
		}
		return false, nil, nil
	})
}
