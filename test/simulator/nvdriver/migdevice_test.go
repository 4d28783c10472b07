package nvdriver

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestMIGDevice(t *testing.T) {
	n := machine(t, "h100x8")
	d := handleOf(t, n, 3)
	migOn(t, d)
	gi := makeGI(t, d, "3g.40gb", 4)
	assert.Equal(t, nvml.ERROR_NOT_FOUND, second(d.GetMigDeviceHandleByIndex(0)), "a GPU instance alone is no device")
	ci := makeCI(t, gi)

	m, ret := d.GetMigDeviceHandleByIndex(0)
	require.Equal(t, nvml.SUCCESS, ret)
	isMIG, ret := m.IsMigDeviceHandle()
	assert.Equal(t, nvml.SUCCESS, ret)
	assert.True(t, isMIG)
	uuid, _ := m.GetUUID()
	assert.Regexp(t, `^MIG-[0-9a-f]{8}-[0-9a-f]{4}-5[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`, uuid)
	name, _ := m.GetName()
	assert.Equal(t, "NVIDIA H100 80GB HBM3 MIG 3g.40gb", name)
	giID, _ := m.GetGpuInstanceId()
	ciID, _ := m.GetComputeInstanceId()
	index, _ := m.GetIndex()
	assert.Equal(t, []int{2, 0, 0}, []int{giID, ciID, index})
	parent, ret := m.GetDeviceHandleFromMigDeviceHandle()
	require.Equal(t, nvml.SUCCESS, ret)
	assert.Same(t, d, parent)
	attributes, ret := m.GetAttributes()
	require.Equal(t, nvml.SUCCESS, ret)
	assert.Equal(t, nvml.DeviceAttributes{
		MultiprocessorCount: 60, SharedCopyEngineCount: 3, SharedDecoderCount: 3, SharedJpegCount: 3,
		GpuInstanceSliceCount: 3, ComputeInstanceSliceCount: 3, MemorySizeMB: 40448,
	}, attributes)
	memory, _ := m.GetMemoryInfo()
	assert.Equal(t, uint64(40448)<<20, memory.Total)
	v2, ret := m.GetMemoryInfo_v2()
	require.Equal(t, nvml.SUCCESS, ret)
	assert.Equal(t, memory.Used, v2.Reserved+v2.Used)
	assert.Positive(t, v2.Reserved)
	byUUID, ret := n.DeviceGetHandleByUUID(uuid)
	require.Equal(t, nvml.SUCCESS, ret)
	assert.Equal(t, m, byUUID)

	ciInfo, _ := ci.GetInfo()
	parentUUID, _ := ciInfo.Device.GetUUID()
	assert.NotEqual(t, uuid, parentUUID, "the trap: a compute instance's device is the GPU")
	_, _, ret = m.GetMigMode()
	assert.Equal(t, nvml.ERROR_NOT_SUPPORTED, ret)
	assert.Equal(t, nvml.ERROR_NOT_SUPPORTED, second(m.GetMinorNumber()))
	assert.Equal(t, nvml.ERROR_NOT_SUPPORTED, second(m.GetMaxMigDeviceCount()))
	assert.Equal(t, nvml.ERROR_INVALID_ARGUMENT, second(d.GetMigDeviceHandleByIndex(7)))

	require.Equal(t, nvml.SUCCESS, ci.Destroy())
	for what, ret := range map[string]nvml.Return{
		"uuid": second(m.GetUUID()), "name": second(m.GetName()), "gi": second(m.GetGpuInstanceId()), "ci": second(m.GetComputeInstanceId()),
		"index": second(m.GetIndex()), "memory": second(m.GetMemoryInfo()), "attributes": second(m.GetAttributes()),
		"parent": second(m.GetDeviceHandleFromMigDeviceHandle()), "processes": second(m.GetComputeRunningProcesses()),
	} {
		assert.Equal(t, nvml.ERROR_INVALID_ARGUMENT, ret, what)
	}
	assert.Equal(t, nvml.ERROR_NOT_FOUND, second(n.DeviceGetHandleByUUID(uuid)))
	makeCI(t, gi)
	m, ret = d.GetMigDeviceHandleByIndex(0)
	require.Equal(t, nvml.SUCCESS, ret)
	again, _ := m.GetUUID()
	assert.Equal(t, uuid, again, "the same ids on the same GPU have the same UUID")
}

func TestSmallComputeInstanceHasItsSlicesInTheName(t *testing.T) {
	d := handleOf(t, machine(t, "a100-40x8"), 0)
	gi := makeGI(t, d, "3g.20gb", 0)
	one, _ := gi.GetComputeInstanceProfileInfo(0, 0)
	_, ret := gi.CreateComputeInstance(&one)
	require.Equal(t, nvml.SUCCESS, ret)
	m, _ := d.GetMigDeviceHandleByIndex(0)
	name, _ := m.GetName()
	assert.Equal(t, "NVIDIA A100-SXM4-40GB MIG 1c.3g.20gb", name)
	attributes, _ := m.GetAttributes()
	assert.Equal(t, []uint32{14, 3, 1}, []uint32{attributes.MultiprocessorCount, attributes.GpuInstanceSliceCount, attributes.ComputeInstanceSliceCount})
}

func TestMIGIndexesHaveHoles(t *testing.T) {
	d := handleOf(t, machine(t, "a100-40x8"), 0)
	var first nvml.ComputeInstance
	for start := range uint32(3) {
		ci := makeCI(t, makeGI(t, d, "1g.5gb", start))
		if start == 0 {
			first = ci
		}
	}
	require.Equal(t, nvml.SUCCESS, first.Destroy())
	assert.Equal(t, nvml.ERROR_NOT_FOUND, second(d.GetMigDeviceHandleByIndex(0)))
	m, ret := d.GetMigDeviceHandleByIndex(2)
	require.Equal(t, nvml.SUCCESS, ret)
	gi, _ := m.GetGpuInstanceId()
	assert.Equal(t, 9, gi)
}

// A program that is handed a MIG device may ask it for whatever it asks a GPU. What is simulated of a
// GPU has an answer of the MIG device, too: a missing method ends the program that has the library.
func TestMIGDeviceAnswers(t *testing.T) {
	n, d := machineAndGPU(t, "a100-40x8")
	makeCI(t, makeGI(t, d, "1g.5gb", 0))
	partition, ret := d.GetMigDeviceHandleByIndex(0)
	require.Equal(t, nvml.SUCCESS, ret)
	mode, ret := partition.GetComputeMode()
	assert.Equal(t, nvml.SUCCESS, ret)
	assert.Equal(t, nvml.COMPUTEMODE_DEFAULT, mode)
	assert.Equal(t, nvml.ERROR_NOT_SUPPORTED, second(partition.GetUtilizationRates()))
	assert.Equal(t, nvml.ERROR_INVALID_ARGUMENT, second(handleOf(t, n, 1).GetTopologyCommonAncestor(partition)))

	// missing reports whether a call with empty arguments meets a method that is not simulated.
	missing := func(d nvml.Device, method string) (missing bool) {
		defer func() {
			missing = strings.Contains(fmt.Sprint(recover()), "DeviceMock."+method)
		}()
		call := reflect.ValueOf(d).MethodByName(method)
		args := make([]reflect.Value, call.Type().NumIn())
		for i := range args {
			args[i] = reflect.Zero(call.Type().In(i))
		}
		call.Call(args)
		return false
	}
	var simulated int
	for method := range reflect.TypeFor[nvml.Device]().Methods() {
		if !missing(d, method.Name) {
			simulated++
			assert.False(t, missing(partition, method.Name), method.Name)
		}
	}
	assert.Greater(t, simulated, 40)
}

func TestTopologyCommonAncestor(t *testing.T) {
	n := machine(t, "h100x8")
	for name, c := range map[string]struct {
		one, two int
		want     nvml.GpuTopologyLevel
	}{
		"itself": {0, 0, nvml.TOPOLOGY_INTERNAL}, "behind one port": {6, 7, nvml.TOPOLOGY_SINGLE},
		"at one processor": {0, 1, nvml.TOPOLOGY_NODE}, "at two": {0, 7, nvml.TOPOLOGY_SYSTEM},
	} {
		level, ret := handleOf(t, n, c.one).GetTopologyCommonAncestor(handleOf(t, n, c.two))
		require.Equal(t, nvml.SUCCESS, ret)
		assert.Equal(t, c.want, level, name)
	}
}
