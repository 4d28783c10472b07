package nvidia

import (
	"context"
	"math"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/test/nvidiatest"
	"github.com/tranche-dev/tranche/test/simulator/load"
	"github.com/tranche-dev/tranche/test/simulator/nvdriver"
)

func (m *machine) usage(pciAddress string) gpu.Usage {
	m.T.Helper()
	u, err := m.Usage(m.T.Context(), pciAddress)
	require.NoError(m.T, err)
	return u
}

const gib = 1 << 30

func TestUsageOfAWholeGPU(t *testing.T) {
	m := simulated(t, nvidiatest.OfModel(t, "H100-80GB", ""))
	first, second := m.GPUs()[0], m.GPUs()[1]
	m.SetFaults(nvdriver.Faults{
		Processes: []nvdriver.Process{
			{GPU: first.PCIAddress, PID: 11, Use: load.Use{Compute: 60, MemoryMiB: 2048}},
			{GPU: first.PCIAddress, PID: 12},
		},
		Load: []load.Load{{GPU: second.PCIAddress, Compute: 20, Memory: 50, Throttled: []string{"SwPowerCap"}, Corrected: 3, Uncorrected: 1}},
	})
	u := m.usage(first.PCIAddress)
	assert.InDelta(t, 2.5*gib, u.Measured[gpu.MemoryUsed], 0)
	assert.InDelta(t, float64(first.Memory), u.Measured[gpu.MemoryTotal], 0)
	assert.InDelta(t, 0.6, u.Measured[gpu.Utilization], 0)
	assert.InDelta(t, 0.3, u.Measured[gpu.MemoryUtilization], 0)
	assert.InDelta(t, 700*0.64, u.Measured[gpu.Power], 0.01)
	assert.InDelta(t, 2, u.Measured[gpu.ProcessCount], 0)
	assert.NotContains(t, u.Measured, gpu.ComputeActive, "there is one sample only")
	assert.Equal(t, map[string]bool{
		"sw_power_cap": false, "hw_slowdown": false, "sync_boost": false, "sw_thermal_slowdown": false,
		"hw_thermal_slowdown": false, "hw_power_brake_slowdown": false,
	}, u.Throttled)
	assert.Equal(t, []gpu.ProcessUsage{
		{PID: 11, Device: first.Name(), Measured: gpu.Measured{gpu.MemoryUsed: 2 * gib, gpu.Utilization: 0.6, gpu.MemoryUtilization: 0.3}},
		{PID: 12, Device: first.Name(), Measured: gpu.Measured{gpu.MemoryUsed: gib / 2, gpu.Utilization: 0, gpu.MemoryUtilization: 0}},
	}, u.Processes)
	assert.Empty(t, u.Partitions)

	m.Driver.usage.keptOf(first.PCIAddress).seen = 1 << 62 // the clock was set back
	processes := u.Processes
	u = m.usage(first.PCIAddress)
	assert.Equal(t, processes, u.Processes)
	assert.InDelta(t, 0.6, u.Measured[gpu.ComputeActive], 1e-9)
	assert.InDelta(t, 0.75, u.Measured[gpu.EngineActive], 1e-9)
	assert.InDelta(t, 0.3, u.Measured[gpu.TensorActive], 1e-9)
	assert.InDelta(t, 0.15, u.Measured[gpu.MemoryActive], 1e-9)

	u = m.usage(second.PCIAddress)
	assert.InDelta(t, float64(second.Memory)/2, u.Measured[gpu.MemoryUsed], gib)
	assert.True(t, u.Throttled["sw_power_cap"])
	assert.InDelta(t, 3, u.Measured[gpu.CorrectedErrors], 0)
	assert.InDelta(t, 1, u.Measured[gpu.UncorrectedErrors], 0)
}

func TestUsageOfPartitions(t *testing.T) {
	m := simulated(t, nvidiatest.OfModel(t, "H100-80GB", ""))
	address := m.GPUs()[0].PCIAddress
	require.NoError(t, m.SetMIG(t.Context(), address, true, false))
	small, large := m.Made(m.Placement("1g.10gb", 0)), m.Made(m.Placement("3g.40gb", 4))
	instances := map[string]int{}
	for _, p := range m.usage(address).Partitions {
		n, err := strconv.Atoi(p.Instance)
		require.NoError(t, err)
		instances[p.UUID] = n
	}
	id, other := instances[small.UUID], instances[large.UUID]
	m.SetFaults(nvdriver.Faults{
		Processes: []nvdriver.Process{{GPU: address, GPUInstance: &id, PID: 11, Use: load.Use{Compute: 40, MemoryMiB: 1024}}},
		Load:      []load.Load{{GPU: "*", Instance: &other, Compute: 80, Memory: 10}},
	})
	m.usage(address)
	u := m.usage(address)
	require.Len(t, u.Partitions, 2)
	first, second := u.Partitions[0], u.Partitions[1]
	assert.Equal(t, small, first.Partition)
	assert.InDelta(t, gib, first.Measured[gpu.MemoryUsed], 0)
	assert.InDelta(t, 10*gib, first.Measured[gpu.MemoryTotal], gib)
	assert.InDelta(t, 0.4, first.Measured[gpu.ComputeActive], 1e-9)
	assert.InDelta(t, 0.5, first.Measured[gpu.EngineActive], 1e-9)
	assert.InDelta(t, 1, first.Measured[gpu.ProcessCount], 0)
	assert.Equal(t, large, second.Partition)
	assert.InDelta(t, 0.8, second.Measured[gpu.ComputeActive], 1e-9)
	assert.InDelta(t, 0, second.Measured[gpu.ProcessCount], 0)
	assert.NotContains(t, u.Measured, gpu.Utilization, "NVML does not tell it in MIG mode")
	assert.NotContains(t, u.Measured, gpu.ComputeActive)
	assert.InDelta(t, first.Measured[gpu.MemoryUsed]+second.Measured[gpu.MemoryUsed], u.Measured[gpu.MemoryUsed], 0)
	assert.Equal(t, []gpu.ProcessUsage{{PID: 11, Device: small.Name(), Measured: gpu.Measured{gpu.MemoryUsed: gib}}}, u.Processes)
}

// What a partition did says nothing about the next one at its place.
func TestAveragesBelongToOnePartition(t *testing.T) {
	m := simulated(t, nvidiatest.OfModel(t, "H100-80GB", ""))
	address := m.GPUs()[0].PCIAddress
	require.NoError(t, m.SetMIG(t.Context(), address, true, false))
	p := m.Placement("1g.10gb", 0)
	m.Made(p)
	m.SetFaults(nvdriver.Faults{Load: []load.Load{{GPU: "*", Compute: 100}}})
	m.usage(address)
	require.NoError(t, m.Destroy(t.Context(), p))
	m.Made(p)
	u := m.usage(address)
	require.Len(t, u.Partitions, 1)
	assert.NotContains(t, u.Partitions[0].Measured, gpu.ComputeActive)
	assert.InDelta(t, 1, m.usage(address).Partitions[0].Measured[gpu.ComputeActive], 1e-9)
}

// Buffers of an NVML that was closed are neither used nor freed.
func TestUsageAfterNVMLWasClosed(t *testing.T) {
	m := simulated(t, nvidiatest.OfModel(t, "H100-80GB", ""))
	address := m.GPUs()[0].PCIAddress
	m.usage(address)
	require.Equal(t, nvml.SUCCESS, m.cfg.NVML.Shutdown())
	u := m.usage(address)
	assert.NotContains(t, u.Measured, gpu.ComputeActive)
	assert.Contains(t, m.usage(address).Measured, gpu.ComputeActive)
}

// GPUs without GPM, and drivers without the newer calls, tell the rest.
func TestUsageOfOlderGPUsAndDrivers(t *testing.T) {
	m := simulated(t, nvidiatest.OfModel(t, "A100-40GB", ""))
	address := m.GPUs()[0].PCIAddress
	m.usage(address)
	u := m.usage(address)
	assert.NotContains(t, u.Measured, gpu.ComputeActive)
	assert.Contains(t, u.Measured, gpu.Utilization)

	m = simulated(t, nvidiatest.OfModel(t, "H100-80GB", ""), func(c *Config) { c.NVML = withoutSymbols{c.NVML} })
	m.usage(address)
	u = m.usage(address)
	assert.NotContains(t, u.Measured, gpu.ComputeActive)
	assert.Nil(t, u.Throttled)
	assert.Contains(t, u.Measured, gpu.Power)
}

// A value that NVML does not report takes away no other.
func TestUsageWithoutOneValue(t *testing.T) {
	m := simulated(t, nvidiatest.OfModel(t, "H100-80GB", ""))
	address := m.GPUs()[0].PCIAddress
	for _, call := range []string{"GetPowerUsage", "GpmSampleGet", "GetComputeRunningProcesses"} {
		m.Fail(call, nvml.ERROR_NO_PERMISSION, 0)
		m.usage(address)
		u := m.usage(address)
		assert.Equal(t, call != "GetPowerUsage", has(u, gpu.Power), call)
		assert.Equal(t, call != "GpmSampleGet", has(u, gpu.ComputeActive), call)
		assert.Contains(t, u.Measured, gpu.MemoryUsed)
	}
	m.Fail("GetMPSComputeRunningProcesses", nvml.ERROR_NOT_SUPPORTED, 0)
	assert.Contains(t, m.usage(address).Measured, gpu.ProcessCount, "a driver without MPS")
	for _, call := range []string{
		"GetPowerUsage", "GetUtilizationRates", "GetTotalEccErrors", "GetSupportedClocksEventReasons", "GetCurrentClocksEventReasons",
		"GpmQueryDeviceSupport", "GpmSampleGet", "GetComputeRunningProcesses", "GetMPSComputeRunningProcesses", "GetProcessUtilization",
	} {
		m.SetFaults(nvdriver.Faults{
			Processes: []nvdriver.Process{{GPU: address, PID: 11}},
			Calls:     []nvdriver.CallFault{{Call: call, GPU: "*", Error: nvdriver.Return(nvml.ERROR_GPU_IS_LOST)}},
		})
		_, err := m.Usage(t.Context(), address)
		require.ErrorIs(t, err, gpu.ErrLost, call)
	}
}

// unusual is a library whose averages are no numbers, or beyond what can be.
type unusual struct{ nvml.Interface }

func (l unusual) GpmMetricsGet(question *nvml.GpmMetricsGetType) nvml.Return {
	ret := l.Interface.GpmMetricsGet(question)
	for i, value := range []float64{math.NaN(), math.Inf(1), 250, -1} {
		question.Metrics[i].Value = value
	}
	return ret
}

func TestAveragesThatAreNoNumbers(t *testing.T) {
	m := simulated(t, nvidiatest.OfModel(t, "H100-80GB", ""), func(c *Config) { c.NVML = unusual{c.NVML} })
	address := m.GPUs()[0].PCIAddress
	m.usage(address)
	u := m.usage(address)
	assert.False(t, has(u, gpu.EngineActive) || has(u, gpu.ComputeActive))
	assert.Equal(t, []float64{1, 0}, []float64{u.Measured[gpu.TensorActive], u.Measured[gpu.MemoryActive]})
}

// A driver that lists no process at all says that each did nothing; one that does not tell says nothing.
func TestProcessesWithoutSample(t *testing.T) {
	m := simulated(t, nvidiatest.OfModel(t, "H100-80GB", ""))
	address := m.GPUs()[0].PCIAddress
	for answer, known := range map[nvml.Return]bool{nvml.ERROR_NOT_FOUND: true, nvml.ERROR_INSUFFICIENT_SIZE: true, nvml.ERROR_NOT_SUPPORTED: false, nvml.ERROR_NO_PERMISSION: false} {
		m.SetFaults(nvdriver.Faults{
			Processes: []nvdriver.Process{{GPU: address, PID: 11}},
			Calls:     []nvdriver.CallFault{{Call: "GetProcessUtilization", GPU: address, Error: nvdriver.Return(answer)}},
		})
		u := m.usage(address)
		require.Len(t, u.Processes, 1)
		used, found := u.Processes[0].Measured[gpu.Utilization]
		assert.Equal(t, known, found, nvml.ErrorString(answer))
		assert.Zero(t, used)
	}
}

func has(u gpu.Usage, measure gpu.Measure) bool {
	_, known := u.Measured[measure]
	return known
}

// withoutSymbols is a library without optional functions.
type withoutSymbols struct{ nvml.Interface }

func (withoutSymbols) Extensions() nvml.ExtendedInterface { return nil }

// Processes that NVML does not report are not none.
func TestUsageOfUntoldProcesses(t *testing.T) {
	m := simulated(t, nvidiatest.OfModel(t, "H100-80GB", ""))
	whole, cut := m.GPUs()[0].PCIAddress, m.GPUs()[1].PCIAddress
	require.NoError(t, m.SetMIG(t.Context(), cut, true, false))
	p := m.Placement("1g.10gb", 0)
	p.GPU = cut
	m.Made(p)
	m.Fail("GetComputeRunningProcesses", nvml.ERROR_NO_PERMISSION, 0)
	assert.NotContains(t, m.usage(whole).Measured, gpu.ProcessCount)
	u := m.usage(cut)
	assert.NotContains(t, u.Measured, gpu.ProcessCount)
	require.Len(t, u.Partitions, 1)
	assert.NotContains(t, u.Partitions[0].Measured, gpu.ProcessCount)
	m.SetFaults(nvdriver.Faults{})
	u = m.usage(cut)
	assert.InDelta(t, 0, u.Measured[gpu.ProcessCount], 0)
	assert.InDelta(t, 0, u.Partitions[0].Measured[gpu.ProcessCount], 0)
}

// A GPU that hangs does not keep the reader, and is read again when it answers.
func TestUsageOfAGPUThatHangs(t *testing.T) {
	m := simulated(t, nvidiatest.OfModel(t, "H100-80GB", ""))
	first, second := m.GPUs()[0].PCIAddress, m.GPUs()[1].PCIAddress
	m.SetFaults(nvdriver.Faults{Calls: []nvdriver.CallFault{{Call: "GetPowerUsage", GPU: first, Hang: true}}})
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err := m.Usage(ctx, first)
	require.ErrorContains(t, err, "DeviceGetPowerUsage")
	m.usage(second)
	m.SetFaults(nvdriver.Faults{})
	require.Eventually(t, func() bool {
		_, err := m.Usage(t.Context(), first)
		return err == nil
	}, 10*time.Second, 10*time.Millisecond)
}

// counting counts the buffers for samples that were not freed.
type counting struct {
	nvml.Interface
	buffers *atomic.Int64
}

func (c counting) GpmSampleAlloc() (nvml.GpmSample, nvml.Return) {
	c.buffers.Add(1)
	return c.Interface.GpmSampleAlloc()
}

func (c counting) GpmSampleFree(s nvml.GpmSample) nvml.Return {
	c.buffers.Add(-1)
	return c.Interface.GpmSampleFree(s)
}

// A reading whose time ends frees its buffers all the same.
func TestBuffersOfAReadingThatTakesTooLong(t *testing.T) {
	var buffers atomic.Int64
	m := simulated(t, nvidiatest.OfModel(t, "H100-80GB", ""), func(c *Config) { c.NVML = counting{c.NVML, &buffers} })
	address := m.GPUs()[0].PCIAddress
	m.usage(address)
	require.Equal(t, int64(1), buffers.Load())
	m.Fail("GpmSampleGet", nvml.ERROR_NO_PERMISSION, 0)
	m.usage(address)
	assert.Zero(t, buffers.Load(), "nor does one without a sample keep any")
	m.NoFaults()
	m.usage(address)
	m.SetFaults(nvdriver.Faults{Calls: []nvdriver.CallFault{{Call: "GpmSampleGet", GPU: address, Hang: true}}})
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err := m.Usage(ctx, address)
	require.ErrorContains(t, err, "GpmSampleGet")
	m.SetFaults(nvdriver.Faults{})
	require.Eventually(t, func() bool {
		_, err := m.Usage(t.Context(), address)
		return err == nil
	}, 10*time.Second, 10*time.Millisecond)
	assert.Equal(t, int64(1), buffers.Load())
}

// How much clients of MPS use a GPU is not known, which is not nothing.
func TestUsageOfClientsOfMPS(t *testing.T) {
	m := simulated(t, nvidiatest.OfModel(t, "H100-80GB", ""))
	g := m.GPUs()[0]
	m.SetFaults(nvdriver.Faults{Processes: []nvdriver.Process{{GPU: g.PCIAddress, PID: 11, MPS: true, Use: load.Use{Compute: 60, MemoryMiB: 2048}}}})
	assert.Equal(t, []gpu.ProcessUsage{{PID: 11, Device: g.Name(), Measured: gpu.Measured{gpu.MemoryUsed: 2 * gib}}}, m.usage(g.PCIAddress).Processes)
}
