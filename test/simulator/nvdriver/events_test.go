package nvdriver

import (
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestXIDEvents(t *testing.T) {
	n := machine(t, "h100x8")
	d, other := handleOf(t, n, 0), handleOf(t, n, 1)
	two, one := 2, 1
	old := XID{GPU: pciOf(d), XID: 31}
	require.NoError(t, SetFaults(n.root, Faults{XIDs: []XID{old}}))
	set, ret := n.EventSetCreate()
	require.Equal(t, nvml.SUCCESS, ret)
	types, ret := d.GetSupportedEventTypes()
	require.Equal(t, nvml.SUCCESS, ret)
	require.Equal(t, nvml.SUCCESS, d.RegisterEvents(types, set))
	_, ret = set.Wait(0)
	assert.Equal(t, nvml.ERROR_TIMEOUT, ret, "what was before is not recorded")

	require.NoError(t, SetFaults(n.root, Faults{XIDs: []XID{old, {GPU: pciOf(other), XID: 79}, {GPU: pciOf(d), GPUInstance: &two, XID: 94}, {GPU: pciOf(d), GPUInstance: &two, ComputeInstance: &one, XID: 94}, old}}))
	event, ret := set.Wait(1000)
	require.Equal(t, nvml.SUCCESS, ret)
	assert.Equal(t, nvml.EventData{Device: d, EventType: nvml.EventTypeXidCriticalError, EventData: 94, GpuInstanceId: 2, ComputeInstanceId: noInstance}, event)
	event, ret = set.Wait(1000)
	require.Equal(t, nvml.SUCCESS, ret)
	assert.Equal(t, nvml.EventData{Device: d, EventType: nvml.EventTypeXidCriticalError, EventData: 94, GpuInstanceId: 2, ComputeInstanceId: 1}, event)
	event, ret = set.Wait(1000)
	require.Equal(t, nvml.SUCCESS, ret)
	assert.Equal(t, uint64(31), event.EventData, "once more than before")
	assert.Equal(t, uint32(noInstance), event.GpuInstanceId)
	_, ret = set.Wait(0)
	assert.Equal(t, nvml.ERROR_TIMEOUT, ret, "the other GPU is not registered")

	require.NoError(t, SetFaults(n.root, Faults{Lost: []string{pciOf(d)}}))
	_, ret = set.Wait(1000)
	assert.Equal(t, nvml.ERROR_GPU_IS_LOST, ret)
	assert.Equal(t, nvml.ERROR_GPU_IS_LOST, d.RegisterEvents(types, set))
	assert.Equal(t, nvml.ERROR_NOT_SUPPORTED, other.RegisterEvents(1<<5, set))
	require.Equal(t, nvml.SUCCESS, set.Free())
	_, ret = set.Wait(0)
	assert.Equal(t, nvml.ERROR_INVALID_ARGUMENT, ret)
}

func TestEventArrivesWhileWaiting(t *testing.T) {
	n, d := machineAndGPU(t, "l4x4")
	set, _ := n.EventSetCreate()
	require.Equal(t, nvml.SUCCESS, d.RegisterEvents(nvml.EventTypeXidCriticalError, set))
	got := make(chan nvml.EventData)
	go func() {
		event, ret := set.Wait(60_000)
		assert.Equal(t, nvml.SUCCESS, ret)
		got <- event
	}()
	require.NoError(t, SetFaults(n.root, Faults{XIDs: []XID{{GPU: pciOf(d), XID: 79}}}))
	assert.Equal(t, uint64(79), (<-got).EventData)
}
