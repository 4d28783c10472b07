package allocation_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
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

func TestExtendedResources(t *testing.T) {
	class := &resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
	assert.Equal(t, []string{"deviceclass.resource.kubernetes.io/a"}, allocation.ExtendedResources(class))
	class.Spec.ExtendedResourceName = new("example.com/a")
	assert.Equal(t, []string{"deviceclass.resource.kubernetes.io/a", "example.com/a"}, allocation.ExtendedResources(class))
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
		result("unmeasured", func(r *resourceapi.DeviceRequestAllocationResult) { r.ShareID = new(types.UID("3")) }),
		result("looked-at", func(r *resourceapi.DeviceRequestAllocationResult) { r.AdminAccess = ptr.To(true) }),
	})
	assert.Equal(t, []structured.DeviceID{id("alone"), id("shared"), id("unmeasured")}, held)
	allocation.Hold(state, []resourceapi.DeviceRequestAllocationResult{result("shared", share("2", "3Gi"))})

	assert.Equal(t, sets.New(id("alone")), state.AllocatedDevices)
	assert.Equal(t, sets.New(structured.MakeSharedDeviceID(id("shared"), new(types.UID("1"))), structured.MakeSharedDeviceID(id("shared"), new(types.UID("2"))),
		structured.MakeSharedDeviceID(id("unmeasured"), new(types.UID("3")))), state.AllocatedSharedDeviceIDs)
	assert.Len(t, state.AggregatedCapacity, 1)
	memory := state.AggregatedCapacity[id("shared")]["memory"]
	assert.Equal(t, "5Gi", memory.String())
	assert.Empty(t, allocation.Nothing().AllocatedDevices)
}
