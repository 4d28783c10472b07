package node

import (
	"errors"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"

	"github.com/tranche-dev/tranche/pkg/claim/ledger"
	"github.com/tranche-dev/tranche/pkg/simulate/nvdriver"
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
	m.faults(nvdriver.Faults{Processes: []nvdriver.Process{{GPU: pci0, PID: 4711}}})
	k.refused(c)
	failed := awaitStatus(t, m.api, c, metav1.ConditionFalse)
	assert.Equal(t, "PrepareFailed", failed.Conditions[0].Reason)
	assert.Contains(t, failed.Conditions[0].Message, "in use by process 4711")

	m.faults(nvdriver.Faults{})
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

// A slow write of an older status does not replace a newer one: of several that wait,
// only the newest is written, after the one that is under way.
func TestClaimStatusesAreOrdered(t *testing.T) {
	api := newAPI()
	c := allocate(t, api, "a", small0)
	started, release := make(chan struct{}), make(chan struct{})
	var writes, underWay atomic.Int32
	api.PrependReactor("patch", "resourceclaims", func(k8stesting.Action) (bool, runtime.Object, error) {
		assert.EqualValues(t, 1, underWay.Add(1), "one write at a time")
		defer underWay.Add(-1)
		if writes.Add(1) == 1 {
			close(started)
			<-release
		}
		return false, nil, nil
	})
	s := &claimStatus{client: api}
	s.failed(t.Context(), c, errors.New("busy"))
	<-started
	s.failed(t.Context(), c, errors.New("still busy"))
	s.prepared(t.Context(), c, ledger.Record{Devices: []ledger.Device{{Name: small0, UUID: "MIG-1"}}})
	assert.Never(t, func() bool { return writes.Load() > 1 }, 5*tick, tick, "the newer one waits")
	close(release)
	awaitStatus(t, api, c, metav1.ConditionTrue)
	require.Eventually(t, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.next) == 0
	}, patience, tick, "nothing is kept of a claim whose status is written")
	assert.EqualValues(t, 2, writes.Load())
	awaitStatus(t, api, c, metav1.ConditionTrue)
}
