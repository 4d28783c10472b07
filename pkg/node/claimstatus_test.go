package node

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/tranche-dev/tranche/pkg/hardware/simulate"
)

// awaitStatus waits until the claim's status says of its one device whether it
// is ready, and returns what it says.
func awaitStatus(t *testing.T, api *fake.Clientset, c *resourceapi.ResourceClaim, ready metav1.ConditionStatus) resourceapi.AllocatedDeviceStatus {
	t.Helper()
	var device resourceapi.AllocatedDeviceStatus
	require.Eventually(t, func() bool {
		now, err := api.ResourceV1().ResourceClaims(c.Namespace).Get(t.Context(), c.Name, metav1.GetOptions{})
		require.NoError(t, err)
		if len(now.Status.Devices) != 1 {
			return false
		}
		device = now.Status.Devices[0]
		return device.Conditions[0].Status == ready
	}, patience, tick)
	assert.Equal(t, "Ready", device.Conditions[0].Type)
	return device
}

// The claim's status says what its devices are, or why there are none.
func TestClaimStatus(t *testing.T) {
	m := newMachine(t, newAPI())
	k, _ := m.start()
	c := allocate(t, m.api, "a", small0)
	m.faults(simulate.Faults{Processes: []simulate.Process{{GPU: pci0, PID: 4711}}})
	k.refused(c)
	failed := awaitStatus(t, m.api, c, metav1.ConditionFalse)
	assert.Equal(t, "PrepareFailed", failed.Conditions[0].Reason)
	assert.Contains(t, failed.Conditions[0].Message, "in use by process 4711")

	m.faults(simulate.Faults{})
	k.mustPrepare(c)
	ready := awaitStatus(t, m.api, c, metav1.ConditionTrue)
	assert.Equal(t, []string{"gpu.tranche.dev", small0}, []string{ready.Driver, ready.Device})
	assert.Contains(t, string(ready.Data.Raw), `"profile":"1g.10gb","uuid":"MIG-`)
	require.Empty(t, k.unprepare(c))
}

func TestDeviceStatuses(t *testing.T) {
	c := claimOf("a", small0, small0)
	c.Status.Allocation.Devices.Results = append(c.Status.Allocation.Devices.Results,
		resourceapi.DeviceRequestAllocationResult{Request: "r", Driver: "other.example.com", Pool: "p", Device: "d"})
	devices := deviceStatuses(c, metav1.ConditionTrue, "Prepared", "", nil)
	require.Len(t, devices, 1, "each device once, and only ours")
	assert.Equal(t, small0, *devices[0].Device)
	c.Status.Allocation = nil
	assert.Empty(t, deviceStatuses(c, metav1.ConditionTrue, "Prepared", "", nil))
}
