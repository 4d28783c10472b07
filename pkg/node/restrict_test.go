package node

import (
	"testing"

	"github.com/stretchr/testify/assert"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"

	"github.com/tranche-dev/tranche/test/nodetest"
)

// dropShares makes the API server one with DRAConsumableCapacity off.
func dropShares(client *fake.Clientset) {
	client.PrependReactor("*", "resourceslices", func(action k8stesting.Action) (bool, runtime.Object, error) {
		if write, ok := action.(interface{ GetObject() runtime.Object }); ok {
			if slice, ok := write.GetObject().(*resourceapi.ResourceSlice); ok {
				for i := range slice.Spec.Devices {
					slice.Spec.Devices[i].AllowMultipleAllocations = nil
				}
			}
		}
		return false, nil, nil
	})
}

// Where the API server drops what lets several claims hold one device, there are
// no shares at any moment, and an event says why.
func TestClusterWithoutConsumableCapacity(t *testing.T) {
	api := nodetest.NewAPI()
	dropShares(api)
	m := newMachine(t, api)
	k, _ := m.start()
	awaitSlices(t, api)
	assert.Contains(t, nodetest.AwaitEvent(t, api, "SharesNotPublished", ""), "DRAConsumableCapacity is off")
	for _, a := range api.Actions() {
		if write, ok := a.(interface{ GetObject() runtime.Object }); ok {
			if slice, ok := write.GetObject().(*resourceapi.ResourceSlice); ok {
				for _, d := range slice.Spec.Devices {
					assert.NotContains(t, d.Name, "-share")
				}
			}
		}
	}
	k.works(nodetest.Allocate(t, api, "a", small0))
}
