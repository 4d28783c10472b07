package drain

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/api/names"
)

func TestTheCacheKeepsLittleOfAClaim(t *testing.T) {
	c := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: "c", Namespace: "n", UID: "u", Annotations: map[string]string{"much": "text"}}}
	c.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "p", UID: "p"}}
	consumed := map[resourceapi.QualifiedName]resource.Quantity{"memory": resource.MustParse("1Gi")}
	c.Spec.Devices.Requests = make([]resourceapi.DeviceRequest, 8)
	c.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: "p", UID: "p"}}
	c.Status.Allocation = &resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{Results: []resourceapi.DeviceRequestAllocationResult{
		{Driver: "other", Pool: "x"},
		{Request: "r", Driver: names.DriverName, Pool: "a", Device: "d", AdminAccess: ptr.To(true), ShareID: ptr.To(types.UID("s")), ConsumedCapacity: consumed, Tolerations: []resourceapi.DeviceToleration{{Key: "k"}, {Operator: resourceapi.DeviceTolerationOpExists}}},
	}}}
	got, err := TrimClaim(c)
	require.NoError(t, err)
	trimmed := got.(*resourceapi.ResourceClaim)
	assert.Empty(t, trimmed.Annotations)
	assert.Empty(t, trimmed.Spec)
	assert.True(t, ofOnePod(trimmed, []types.UID{"p"}))
	assert.Equal(t, c.Status.ReservedFor, trimmed.Status.ReservedFor)
	assert.Equal(t, []resourceapi.DeviceRequestAllocationResult{
		{Driver: names.DriverName, Pool: "a", Device: "d", AdminAccess: ptr.To(true), ShareID: ptr.To(types.UID("s")), ConsumedCapacity: consumed, Tolerations: []resourceapi.DeviceToleration{{Operator: resourceapi.DeviceTolerationOpExists}}},
	}, trimmed.Status.Allocation.Devices.Results)
	assert.Equal(t, [][]string{{"a"}, {"a"}}, [][]string{NodesOf(c), NodesOf(trimmed)})
	assert.Equal(t, "n/c u", client.ObjectKeyFromObject(trimmed).String()+" "+string(trimmed.UID))
	again, err := TrimClaim(trimmed)
	require.NoError(t, err)
	assert.Equal(t, trimmed, again)

	c.Status.Allocation.Devices.Results = c.Status.Allocation.Devices.Results[:1]
	got, err = TrimClaim(c)
	require.NoError(t, err)
	assert.Equal(t, &resourceapi.AllocationResult{}, got.(*resourceapi.ResourceClaim).Status.Allocation, "of other drivers' claims it is known that they have something")
	c.Status.Allocation, c.DeletionTimestamp = nil, ptr.To(metav1.Unix(1e9, 0))
	got, err = TrimClaim(c)
	require.NoError(t, err)
	assert.Nil(t, got.(*resourceapi.ResourceClaim).Status.Allocation)
	assert.Equal(t, c.DeletionTimestamp, got.(*resourceapi.ResourceClaim).DeletionTimestamp)
	same, err := TrimClaim("a tombstone")
	require.NoError(t, err)
	assert.Equal(t, "a tombstone", same)
}
