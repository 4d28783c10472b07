package nvdriver

import (
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/test/simulator/memory"
)

// text reads a C string.
func text(s []int8) string {
	var b []byte
	for _, c := range s {
		if c == 0 {
			break
		}
		b = append(b, byte(c))
	}
	return string(b)
}

func TestGPUThatTellsNoMemory(t *testing.T) {
	d := handleOf(t, open(t, parsed(t, "gpus: [{model: GB10}]"), memory.TempDir(t)), 0)
	_, ret := d.GetMemoryInfo()
	assert.Equal(t, nvml.ERROR_NOT_SUPPORTED, ret)
	_, ret = d.GetMemoryInfo_v2()
	assert.Equal(t, nvml.ERROR_NOT_SUPPORTED, ret)
	cores, ret := d.GetNumGpuCores()
	assert.Equal(t, nvml.SUCCESS, ret)
	assert.Equal(t, 48*128, cores)
}

func TestGPU(t *testing.T) {
	d := handleOf(t, machine(t, "h100x8"), 4)
	name, ret := d.GetName()
	require.Equal(t, nvml.SUCCESS, ret)
	assert.Equal(t, "NVIDIA H100 80GB HBM3", name)
	index, _ := d.GetIndex()
	minor, _ := d.GetMinorNumber()
	assert.Equal(t, []int{4, 4}, []int{index, minor})

	pci, ret := d.GetPciInfo()
	require.Equal(t, nvml.SUCCESS, ret)
	assert.Equal(t, "00000000:9D:00.0", text(pci.BusId[:]))
	assert.Equal(t, "0000:9D:00.0", text(pci.BusIdLegacy[:]))
	assert.Equal(t, []uint32{0, 0x9d, 0, 0x233010DE}, []uint32{pci.Domain, pci.Bus, pci.Device, pci.PciDeviceId})

	memory, _ := d.GetMemoryInfo()
	v2, ret := d.GetMemoryInfo_v2()
	require.Equal(t, nvml.SUCCESS, ret)
	assert.Equal(t, uint64(81559)<<20, memory.Total)
	assert.Equal(t, memory.Total, v2.Total)
	assert.Equal(t, uint64(551)<<20, v2.Reserved)
	assert.Equal(t, v2.Reserved, memory.Used)
	assert.Equal(t, v2.Total, v2.Free+v2.Used+v2.Reserved)

	arch, _ := d.GetArchitecture()
	assert.Equal(t, nvml.DeviceArchitecture(nvml.DEVICE_ARCH_HOPPER), arch)
	brand, _ := d.GetBrand()
	assert.Equal(t, nvml.BRAND_NVIDIA, brand)
	major, minorCC, _ := d.GetCudaComputeCapability()
	assert.Equal(t, []int{9, 0}, []int{major, minorCC})
	cores, _ := d.GetNumGpuCores()
	assert.Equal(t, 132*128, cores)
	virt, _ := d.GetVirtualizationMode()
	assert.Equal(t, nvml.GPU_VIRTUALIZATION_MODE_NONE, virt)
	mode, _ := d.GetComputeMode()
	assert.Equal(t, nvml.COMPUTEMODE_DEFAULT, mode)
	addressing, _ := d.GetAddressingMode()
	assert.Equal(t, uint32(nvml.DEVICE_ADDRESSING_MODE_NONE), addressing.Value)
	mig, _ := d.IsMigDeviceHandle()
	assert.False(t, mig)
	count, _ := d.GetMaxMigDeviceCount()
	assert.Zero(t, count, "MIG mode is off")

	assert.Equal(t, nvml.ERROR_NOT_SUPPORTED, second(d.GetDeviceHandleFromMigDeviceHandle()))
}

func second[T any](_ T, ret nvml.Return) nvml.Return { return ret }

func TestGPUWithoutMIG(t *testing.T) {
	d := handleOf(t, machine(t, "l4x4"), 0)
	_, _, ret := d.GetMigMode()
	assert.Equal(t, nvml.ERROR_NOT_SUPPORTED, ret)
	_, ret = d.SetMigMode(nvml.DEVICE_MIG_ENABLE)
	assert.Equal(t, nvml.ERROR_NOT_SUPPORTED, ret)
	assert.Equal(t, nvml.ERROR_NOT_SUPPORTED, second(d.GetGpuInstanceProfileInfo(0)))
	info := nvml.GpuInstanceProfileInfo{Id: 19, InstanceCount: 7}
	assert.Equal(t, nvml.ERROR_NOT_SUPPORTED, second(d.GetGpuInstances(&info)))
	assert.Equal(t, nvml.ERROR_NOT_SUPPORTED, second(d.GetGpuInstanceRemainingCapacity(&info)))
	assert.Equal(t, nvml.ERROR_NOT_SUPPORTED, second(d.GetGpuInstanceById(7)))
	assert.Equal(t, nvml.ERROR_NOT_SUPPORTED, second(d.GetMigDeviceHandleByIndex(0)))
	count, ret := d.GetMaxMigDeviceCount()
	assert.Equal(t, nvml.SUCCESS, ret)
	assert.Zero(t, count)
	cores, _ := d.GetNumGpuCores()
	assert.Equal(t, 58*128, cores)
}

func TestProcesses(t *testing.T) {
	n, d := machineAndGPU(t, "h100x8")
	migOn(t, d)
	gi := makeGI(t, d, "3g.40gb", 4)
	makeCI(t, gi)
	two := 2
	require.NoError(t, AddProcess(n.root, Process{GPU: pciOf(d), PID: 41}))
	require.NoError(t, SetFaults(n.root, Faults{Processes: []Process{{GPU: pciOf(d), GPUInstance: &two, PID: 42, Name: "python"}}}))

	on := func(d nvml.Device) (pids []uint32) {
		all, ret := d.GetComputeRunningProcesses()
		require.Equal(t, nvml.SUCCESS, ret)
		for _, p := range all {
			pids = append(pids, p.Pid)
		}
		return pids
	}
	assert.Equal(t, []uint32{41, 42}, on(d))
	assert.Empty(t, on(handleOf(t, n, 1)))
	m, ret := d.GetMigDeviceHandleByIndex(0)
	require.Equal(t, nvml.SUCCESS, ret)
	assert.Equal(t, []uint32{42}, on(m))
	graphics, ret := d.GetGraphicsRunningProcesses()
	assert.Equal(t, nvml.SUCCESS, ret)
	assert.Empty(t, graphics)

	require.NoError(t, RemoveProcess(n.root, 41))
	assert.Equal(t, []uint32{42}, on(d))
	assert.ErrorContains(t, AddProcess(n.root, Process{GPU: "0000:00:00.0", PID: 1}), "no GPU at 0000:00:00.0")
	assert.ErrorContains(t, AddProcess(n.root, Process{GPU: pciOf(d)}), "pid: 0")
	assert.ErrorContains(t, AddProcess(memory.TempDir(t), Process{GPU: pciOf(d), PID: 1}), "no simulated machine")
}

func TestComputeMode(t *testing.T) {
	n, d := machineAndGPU(t, "h100x8")
	require.Equal(t, nvml.SUCCESS, d.SetComputeMode(nvml.COMPUTEMODE_EXCLUSIVE_PROCESS))
	mode, ret := d.GetComputeMode()
	require.Equal(t, nvml.SUCCESS, ret)
	assert.Equal(t, nvml.COMPUTEMODE_EXCLUSIVE_PROCESS, mode)
	assert.Equal(t, nvml.ERROR_INVALID_ARGUMENT, d.SetComputeMode(nvml.COMPUTEMODE_COUNT))
	assert.Equal(t, nvml.ERROR_NOT_SUPPORTED, d.SetComputeMode(nvml.COMPUTEMODE_EXCLUSIVE_THREAD))
	require.NoError(t, ReloadDriver(n.root))
	mode, _ = d.GetComputeMode()
	assert.Equal(t, nvml.COMPUTEMODE_DEFAULT, mode)
	migOn(t, d)
	assert.Equal(t, nvml.ERROR_NOT_SUPPORTED, d.SetComputeMode(nvml.COMPUTEMODE_DEFAULT))
}
