package telemetry

import (
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	k8stesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/claim/ledger"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/profile"
	"github.com/tranche-dev/tranche/test/clientfake"
	"github.com/tranche-dev/tranche/test/nodetest"
)

// mig0 is a device that a claim holds.
const mig0 = "gpu-0000-1b-00-0-mig-1g-10gb-4"

// What the status of a claim says of each device and each share of this driver, once.
func TestDeviceStatuses(t *testing.T) {
	const memoryShare = "gpu-0000-43-00-0-memory-share"
	c := nodetest.ClaimOf("a", mig0, mig0, memoryShare, memoryShare)
	c.Generation = 3
	c.Status.Allocation.Devices.Results = append(c.Status.Allocation.Devices.Results,
		resourceapi.DeviceRequestAllocationResult{Request: "r", Driver: "other.example.com", Pool: "p", Device: "d"})
	api := nodetest.NewAPI(c)
	s := gpu.ShareOf(gpu.Placement{GPU: "0000:43:00.0", Type: gpu.TypeGPU}, gpu.ByMemory, profile.Default().Sharing)
	limited := ledger.Device{Name: memoryShare, Placement: s, UUID: "GPU-1", ShareID: "share-2a", MemoryLimit: 1 << 30}
	free := limited
	free.ShareID, free.MemoryLimit = "share-3a", 0
	patches := make(chan []byte, 1)
	clientfake.React(&api.Fake, "patch", "resourceclaims", func(action k8stesting.Action) (bool, runtime.Object, error) {
		patches <- action.(k8stesting.PatchAction).GetPatch()
		return false, nil, nil
	})
	NewClaimStatus(api).Prepared(t.Context(), c, ledger.Record{Devices: []ledger.Device{
		{Name: mig0, UUID: "MIG-1", Placement: gpu.Placement{Type: gpu.TypeMIG, Profile: "1g.10gb"}}, limited, free,
	}})
	var written resourceapi.ResourceClaim
	require.NoError(t, json.Unmarshal(<-patches, &written))
	assert.Equal(t, c.UID, written.UID, "no later claim of its name gets it")
	var told []string
	for _, d := range written.Status.Devices {
		ready := d.Conditions[0]
		told = append(told, fmt.Sprintf("%s %s/%s %s: %s %d %s %s", d.Driver, d.Pool, d.Device, ptr.Deref(d.ShareID, "-"), ready.Status, ready.ObservedGeneration, ready.Reason, d.Data.Raw))
	}
	assert.Equal(t, []string{
		"gpu.tranche.dev node-a/" + mig0 + ` -: True 3 Prepared {"profile":"1g.10gb","uuid":"MIG-1"}`,
		"gpu.tranche.dev node-a/" + memoryShare + ` share-2a: True 3 Prepared {"uuid":"GPU-1","shareUnit":"Memory","sharingStrategy":"TimeSlicing","isolation":"none","memoryLimit":"1Gi"}`,
		"gpu.tranche.dev node-a/" + memoryShare + ` share-3a: True 3 Prepared {"uuid":"GPU-1","shareUnit":"Memory","sharingStrategy":"TimeSlicing","isolation":"none"}`,
	}, told)

	c.Status.Allocation = nil
	api = nodetest.NewAPI(c)
	NewClaimStatus(api).Failed(t.Context(), c, errors.New("not allocated"))
	assert.Empty(t, api.Actions(), "nothing is written of a claim without devices")
}

// A slow write of an older status does not replace a newer one: of several that wait,
// only the newest is written, after the one that is under way.
func TestClaimStatusesAreOrdered(t *testing.T) {
	api := nodetest.NewAPI()
	c := nodetest.Allocate(t, api, "a", mig0)
	started, release := make(chan struct{}), make(chan struct{})
	var writes, underWay atomic.Int32
	clientfake.React(&api.Fake, "patch", "resourceclaims", func(k8stesting.Action) (bool, runtime.Object, error) {
		assert.EqualValues(t, 1, underWay.Add(1), "one write at a time")
		defer underWay.Add(-1)
		if writes.Add(1) == 1 {
			close(started)
			<-release
		}
		return false, nil, nil
	})
	s := NewClaimStatus(api)
	s.Failed(t.Context(), c, errors.New("busy"))
	<-started
	s.Failed(t.Context(), c, errors.New("still busy"))
	s.Prepared(t.Context(), c, ledger.Record{Devices: []ledger.Device{{Name: mig0, UUID: "MIG-1"}}})
	assert.Never(t, func() bool { return writes.Load() > 1 }, 5*nodetest.Tick, nodetest.Tick, "the newer one waits")
	close(release)
	nodetest.AwaitStatus(t, api, c, metav1.ConditionTrue)
	require.Eventually(t, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.next) == 0
	}, nodetest.Patience, nodetest.Tick, "nothing is kept of a claim whose status is written")
	assert.EqualValues(t, 2, writes.Load())
	nodetest.AwaitStatus(t, api, c, metav1.ConditionTrue)
}

// A condition keeps the time at which it got its status.
func TestTransitionTimeIsKept(t *testing.T) {
	c := nodetest.ClaimOf("a", mig0)
	before := metav1.NewTime(time.Now().Add(-time.Hour).Truncate(time.Second))
	result := c.Status.Allocation.Devices.Results[0]
	known := resourceapi.AllocatedDeviceStatus{Driver: result.Driver, Pool: result.Pool, Device: result.Device,
		Conditions: []metav1.Condition{{Type: names.ClaimConditionReady, Status: metav1.ConditionFalse, LastTransitionTime: before}}}
	c.Status.Devices = []resourceapi.AllocatedDeviceStatus{known}
	at := func(ready metav1.ConditionStatus) metav1.Time {
		return *deviceStatuses(c, ready, "R", "", nil)[0].Conditions[0].LastTransitionTime
	}
	assert.Equal(t, before, at(metav1.ConditionFalse))
	assert.WithinDuration(t, time.Now(), at(metav1.ConditionTrue).Time, time.Minute)
	for what, change := range map[string]func(*resourceapi.AllocatedDeviceStatus){
		"driver":    func(d *resourceapi.AllocatedDeviceStatus) { d.Driver = "another" },
		"pool":      func(d *resourceapi.AllocatedDeviceStatus) { d.Pool = "another" },
		"device":    func(d *resourceapi.AllocatedDeviceStatus) { d.Device = "another" },
		"share":     func(d *resourceapi.AllocatedDeviceStatus) { d.ShareID = ptr.To("another") },
		"condition": func(d *resourceapi.AllocatedDeviceStatus) { d.Conditions[0].Type = "another" },
	} {
		d := *known.DeepCopy()
		change(&d)
		c.Status.Devices = []resourceapi.AllocatedDeviceStatus{d}
		assert.WithinDuration(t, time.Now(), at(metav1.ConditionFalse).Time, time.Minute, what)
		c.Status.Devices = append(c.Status.Devices, known)
		assert.Equal(t, before, at(metav1.ConditionFalse), what)
	}
}
