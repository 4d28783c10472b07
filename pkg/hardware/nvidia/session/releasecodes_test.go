package session_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/test/simulator/nvdriver"
)

// releaseCodes has the codes that nvml.h (CUDA 13.3) lists for each call of a release, other than
// anyCall.
var releaseCodes = map[string][]nvml.Return{
	"DeviceGetHandleByPciBusId":                {nvml.ERROR_INVALID_ARGUMENT, nvml.ERROR_NOT_FOUND, nvml.ERROR_INSUFFICIENT_POWER, nvml.ERROR_NO_PERMISSION, nvml.ERROR_IRQ_ISSUE},
	"DeviceGetMigMode":                         {nvml.ERROR_INVALID_ARGUMENT, nvml.ERROR_NOT_SUPPORTED},
	"DeviceGetMaxMigDeviceCount":               {nvml.ERROR_INVALID_ARGUMENT},
	"DeviceGetMigDeviceHandleByIndex":          {nvml.ERROR_INVALID_ARGUMENT, nvml.ERROR_NOT_SUPPORTED, nvml.ERROR_NOT_FOUND},
	"DeviceGetGpuInstanceProfileInfo":          {nvml.ERROR_INVALID_ARGUMENT, nvml.ERROR_NOT_SUPPORTED, nvml.ERROR_NO_PERMISSION},
	"DeviceGetGpuInstances":                    {nvml.ERROR_INVALID_ARGUMENT, nvml.ERROR_NOT_SUPPORTED, nvml.ERROR_NO_PERMISSION},
	"DeviceGetGpuInstanceById":                 {nvml.ERROR_INVALID_ARGUMENT, nvml.ERROR_NOT_SUPPORTED, nvml.ERROR_NO_PERMISSION, nvml.ERROR_NOT_FOUND},
	"GpuInstanceGetInfo":                       {nvml.ERROR_INVALID_ARGUMENT, nvml.ERROR_NO_PERMISSION},
	"GpuInstanceGetComputeInstanceProfileInfo": {nvml.ERROR_INVALID_ARGUMENT, nvml.ERROR_NOT_SUPPORTED, nvml.ERROR_NO_PERMISSION},
	"GpuInstanceGetComputeInstances":           {nvml.ERROR_INVALID_ARGUMENT, nvml.ERROR_NOT_SUPPORTED, nvml.ERROR_NO_PERMISSION},
	"ComputeInstanceGetInfo":                   {nvml.ERROR_INVALID_ARGUMENT, nvml.ERROR_NO_PERMISSION},
	"ComputeInstanceDestroy":                   {nvml.ERROR_INVALID_ARGUMENT, nvml.ERROR_NO_PERMISSION, nvml.ERROR_IN_USE},
	"GpuInstanceDestroy":                       {nvml.ERROR_INVALID_ARGUMENT, nvml.ERROR_NOT_SUPPORTED, nvml.ERROR_NO_PERMISSION, nvml.ERROR_IN_USE},
	"DeviceGetComputeRunningProcesses":         {nvml.ERROR_INVALID_ARGUMENT, nvml.ERROR_NOT_SUPPORTED, nvml.ERROR_NO_PERMISSION, nvml.ERROR_INSUFFICIENT_SIZE},
}

// anyCall are codes that every call may answer: those that nvml.h lists for all, and those of a GPU
// that fails.
var anyCall = []nvml.Return{nvml.ERROR_UNINITIALIZED, nvml.ERROR_UNKNOWN, nvml.ERROR_GPU_IS_LOST, nvml.ERROR_RESET_REQUIRED, nvml.ERROR_TIMEOUT}

// Whatever one call of a release answers, a partition that exists does not pass for gone: it is
// destroyed, or there is an error, of which the claim keeps a record. Processes are named where
// they are known.
func TestCodesDuringARelease(t *testing.T) {
	for call, codes := range releaseCodes {
		t.Run(call, func(t *testing.T) {
			t.Parallel()
			var answer scriptedAnswer
			m := simulated(t, "h100x8", func(c *Config) { c.NVML = scriptedLibrary{c.NVML, &answer} })
			p := m.Placement("1g.10gb", 6)
			for _, state := range []string{"complete", "busy", "without a compute instance"} {
				busy := state == "busy"
				for _, code := range slices.Concat(codes, anyCall) {
					answer = scriptedAnswer{}
					if state == "without a compute instance" {
						m.BareInstance(p)
					} else {
						m.Made(p)
					}
					id := m.Partitions(p.GPU)[0].ID
					var instance int
					_, err := fmt.Sscanf(id, "GI %d", &instance)
					require.NoError(t, err)
					if busy {
						m.SetFaults(nvdriver.Faults{Processes: []nvdriver.Process{{GPU: p.GPU, GPUInstance: &instance, PID: 4711}}})
					}
					answer = scriptedAnswer{call, code}
					seen, listErr := m.Live(t.Context(), p.GPU)
					err = m.Destroy(t.Context(), p)
					answer = scriptedAnswer{}
					exists := len(m.Partitions(p.GPU)) > 0
					if listErr == nil {
						assert.True(t, len(seen) == 1 && seen[0].Is(p), "%s, %v: it passes for gone", state, code)
					}
					if err == nil {
						assert.False(t, exists, "%s, %v: it was not destroyed", state, code)
					}
					if busy {
						require.Error(t, err, code)
						assert.True(t, exists, "%v: it was in use", code)
						if named := (*gpu.ProcessesError)(nil); errors.As(err, &named) {
							assert.ErrorContains(t, err, "4711")
						}
					}
					m.NoFaults()
					require.NoError(t, m.Destroy(t.Context(), p), "%v: the next try", code)
					require.Empty(t, m.Partitions(p.GPU))
				}
			}
		})
	}
}

// scriptedAnswer is what a call answers; of no call without a name.
type scriptedAnswer struct {
	call string
	code nvml.Return
}

// to is what a call answers instead of its answer.
func (a *scriptedAnswer) to(call string, ret nvml.Return) nvml.Return {
	if a.call == call {
		return a.code
	}
	return ret
}

type scriptedLibrary struct {
	nvml.Interface
	answer *scriptedAnswer
}

func (l scriptedLibrary) DeviceGetHandleByPciBusId(id string) (nvml.Device, nvml.Return) {
	d, ret := l.Interface.DeviceGetHandleByPciBusId(id)
	return scriptedDevice{d, l.answer}, l.answer.to("DeviceGetHandleByPciBusId", ret)
}

type scriptedDevice struct {
	nvml.Device
	answer *scriptedAnswer
}

func (d scriptedDevice) GetMigMode() (current, pending int, ret nvml.Return) {
	current, pending, ret = d.Device.GetMigMode()
	return current, pending, d.answer.to("DeviceGetMigMode", ret)
}

func (d scriptedDevice) GetMaxMigDeviceCount() (int, nvml.Return) {
	n, ret := d.Device.GetMaxMigDeviceCount()
	return n, d.answer.to("DeviceGetMaxMigDeviceCount", ret)
}

func (d scriptedDevice) GetMigDeviceHandleByIndex(index int) (nvml.Device, nvml.Return) {
	device, ret := d.Device.GetMigDeviceHandleByIndex(index)
	return device, d.answer.to("DeviceGetMigDeviceHandleByIndex", ret)
}

func (d scriptedDevice) GetGpuInstanceProfileInfo(n int) (nvml.GpuInstanceProfileInfo, nvml.Return) {
	info, ret := d.Device.GetGpuInstanceProfileInfo(n)
	return info, d.answer.to("DeviceGetGpuInstanceProfileInfo", ret)
}

func (d scriptedDevice) GetGpuInstances(info *nvml.GpuInstanceProfileInfo) ([]nvml.GpuInstance, nvml.Return) {
	all, ret := d.Device.GetGpuInstances(info)
	if ret = d.answer.to("DeviceGetGpuInstances", ret); ret != nvml.SUCCESS {
		return nil, ret
	}
	for i := range all {
		all[i] = scriptedInstance{all[i], d.answer}
	}
	return all, ret
}

func (d scriptedDevice) GetGpuInstanceById(id int) (nvml.GpuInstance, nvml.Return) {
	gi, ret := d.Device.GetGpuInstanceById(id)
	return scriptedInstance{gi, d.answer}, d.answer.to("DeviceGetGpuInstanceById", ret)
}

func (d scriptedDevice) GetComputeRunningProcesses() ([]nvml.ProcessInfo, nvml.Return) {
	all, ret := d.Device.GetComputeRunningProcesses()
	return all, d.answer.to("DeviceGetComputeRunningProcesses", ret)
}

type scriptedInstance struct {
	nvml.GpuInstance
	answer *scriptedAnswer
}

func (i scriptedInstance) GetInfo() (nvml.GpuInstanceInfo, nvml.Return) {
	info, ret := i.GpuInstance.GetInfo()
	return info, i.answer.to("GpuInstanceGetInfo", ret)
}

func (i scriptedInstance) GetComputeInstanceProfileInfo(n, engines int) (nvml.ComputeInstanceProfileInfo, nvml.Return) {
	info, ret := i.GpuInstance.GetComputeInstanceProfileInfo(n, engines)
	return info, i.answer.to("GpuInstanceGetComputeInstanceProfileInfo", ret)
}

func (i scriptedInstance) GetComputeInstances(info *nvml.ComputeInstanceProfileInfo) ([]nvml.ComputeInstance, nvml.Return) {
	all, ret := i.GpuInstance.GetComputeInstances(info)
	if ret = i.answer.to("GpuInstanceGetComputeInstances", ret); ret != nvml.SUCCESS {
		return nil, ret
	}
	for n := range all {
		all[n] = scriptedCompute{all[n], i.answer}
	}
	return all, ret
}

func (i scriptedInstance) Destroy() nvml.Return {
	if ret := i.answer.to("GpuInstanceDestroy", nvml.SUCCESS); ret != nvml.SUCCESS {
		return ret
	}
	return i.GpuInstance.Destroy()
}

type scriptedCompute struct {
	nvml.ComputeInstance
	answer *scriptedAnswer
}

func (c scriptedCompute) GetInfo() (nvml.ComputeInstanceInfo, nvml.Return) {
	info, ret := c.ComputeInstance.GetInfo()
	return info, c.answer.to("ComputeInstanceGetInfo", ret)
}

func (c scriptedCompute) Destroy() nvml.Return {
	if ret := c.answer.to("ComputeInstanceDestroy", nvml.SUCCESS); ret != nvml.SUCCESS {
		return ret
	}
	return c.ComputeInstance.Destroy()
}
