package allocation_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/structured"
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/pkg/allocation"
)

func TestClasses(t *testing.T) {
	classes := allocation.Classes{}
	for _, name := range []string{"b", "a"} {
		classes[name] = &resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: name}}
	}
	b, err := classes.Get("b")
	require.NoError(t, err)
	assert.Equal(t, "b", b.Name)
	_, err = classes.Get("c")
	require.EqualError(t, err, "there is no DeviceClass c")
	all, err := classes.List()
	require.NoError(t, err)
	assert.Equal(t, []*resourceapi.DeviceClass{classes["a"], classes["b"]}, all)
}

func TestHold(t *testing.T) {
	id := func(device string) structured.DeviceID { return structured.MakeDeviceID("driver", "pool", device) }
	result := func(device string, change ...func(*resourceapi.DeviceRequestAllocationResult)) resourceapi.DeviceRequestAllocationResult {
		r := resourceapi.DeviceRequestAllocationResult{Driver: "driver", Pool: "pool", Device: device}
		for _, c := range change {
			c(&r)
		}
		return r
	}
	share := func(uid, amount string) func(*resourceapi.DeviceRequestAllocationResult) {
		return func(r *resourceapi.DeviceRequestAllocationResult) {
			r.ShareID = new(types.UID(uid))
			r.ConsumedCapacity = map[resourceapi.QualifiedName]resource.Quantity{"memory": resource.MustParse(amount)}
		}
	}
	state := allocation.Nothing()
	held := allocation.Hold(state, []resourceapi.DeviceRequestAllocationResult{
		result("alone"), result("shared", share("1", "2Gi")),
		result("looked-at", func(r *resourceapi.DeviceRequestAllocationResult) { r.AdminAccess = ptr.To(true) }),
	})
	assert.Equal(t, []structured.DeviceID{id("alone"), id("shared")}, held)
	allocation.Hold(state, []resourceapi.DeviceRequestAllocationResult{result("shared", share("2", "3Gi"))})

	assert.True(t, state.AllocatedDevices.Has(id("alone")))
	assert.Len(t, state.AllocatedDevices, 1)
	assert.Len(t, state.AllocatedSharedDeviceIDs, 2)
	memory := state.AggregatedCapacity[id("shared")]["memory"]
	assert.Equal(t, "5Gi", memory.String())
	assert.Empty(t, allocation.Nothing().AllocatedDevices)
}
