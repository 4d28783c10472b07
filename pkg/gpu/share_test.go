package gpu_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/tranche-dev/tranche/pkg/gpu"
)

// What keeps the holders of a share to their memory decides what is promised of it.
func TestIsolationOfShares(t *testing.T) {
	whole := gpu.Placement{GPU: "0000:05:00.0", Type: gpu.TypeGPU, Consumes: gpu.Counters{"slices": 8}}
	for _, test := range []struct {
		name    string
		sharing gpu.Sharing
		want    gpu.Isolation
	}{
		{"nothing", gpu.Sharing{Strategy: gpu.TimeSlicing}, gpu.IsolationNone},
		{"an MPS daemon", gpu.Sharing{Strategy: gpu.MPS, Limits: true}, gpu.IsolationCooperative},
		{"the kernel", gpu.Sharing{Strategy: gpu.TimeSlicing, KernelLimits: true}, gpu.IsolationKernel},
		{"the kernel beside MPS, which it does not see through", gpu.Sharing{Strategy: gpu.MPS, KernelLimits: true, Limits: true}, gpu.IsolationCooperative},
		{"the kernel, with an MPS that limits nothing", gpu.Sharing{Strategy: gpu.MPS, KernelLimits: true}, gpu.IsolationNone},
	} {
		for _, by := range gpu.Bases() {
			s := gpu.ShareOf(whole, by, test.sharing)
			assert.Equal(t, test.want, s.Isolation, test.name)
			assert.Equal(t, &gpu.Share{Of: gpu.TypeGPU, By: by, Sharing: test.sharing}, s.Share)
			assert.Equal(t, gpu.TypeShare, s.Type)
			assert.Equal(t, whole.Consumes, s.Consumes, "it keeps off what the whole GPU does")
		}
	}
	assert.Equal(t, []gpu.Basis{gpu.ByMemory, gpu.ByFraction}, gpu.Bases())
}

// A limit that is the request, or none at all, leaves nothing to burst into.
func TestBurst(t *testing.T) {
	for percent, want := range map[int]bool{0: false, 100: false, 101: true, 200: true} {
		assert.Equal(t, want, gpu.Sharing{MaxMemoryLimitPercent: percent}.Burst(), percent)
	}
}

func TestConflictOfSharesAndModes(t *testing.T) {
	g := gpu.GPU{Counters: gpu.Counters{"slices": 8}}
	whole := gpu.Placement{GPU: "0000:05:00.0", Type: gpu.TypeGPU, Consumes: gpu.Counters{"slices": 8}}
	s := gpu.Sharing{Strategy: gpu.TimeSlicing}
	memory, fraction := gpu.ShareOf(whole, gpu.ByMemory, s), gpu.ShareOf(whole, gpu.ByFraction, s)
	partition := func(profile string, start int) gpu.Placement {
		return gpu.Placement{GPU: "0000:05:00.0", Type: gpu.TypeXCP, Profile: profile, Start: start}
	}
	for _, test := range []struct {
		name string
		a, b gpu.Placement
		want bool
	}{
		{"shares of one device", memory, memory, false},
		{"shares by different units", memory, fraction, true},
		{"a share and the whole GPU", memory, whole, true},
		{"two partitions of a mode", partition("cpx", 0), partition("cpx", 1), false},
		{"a partition without counters, and who only looks", partition("cpx", 0), gpu.Monitor("0000:05:00.0"), false},
		{"of two modes, whose counters are gone", partition("cpx", 0), partition("dpx", 1), true},
	} {
		assert.Equal(t, test.want, g.Conflict(test.a, test.b), test.name)
		assert.Equal(t, test.want, g.Conflict(test.b, test.a), test.name)
	}
}

func TestMonitor(t *testing.T) {
	m := gpu.Monitor("0000:05:00.0")
	assert.Equal(t, "gpu-0000-05-00-0-monitor", m.Name())
	for device, want := range map[string]bool{
		m.Name(): true, "gpu-0000-05-00-0": false, "gpu-0000-05-00-0-cpx-0": false, "nic-0-monitor": false,
	} {
		assert.Equal(t, want, gpu.IsMonitor(device), device)
	}
}

func TestVendorOf(t *testing.T) {
	for resource, want := range map[string]gpu.Vendor{
		"nvidia.com/gpu": gpu.NVIDIA, "nvidia.com/mig-1g.10gb": gpu.NVIDIA, "amd.com/gpu": gpu.AMD,
		"intel.com/gpu": "", "cpu": "", "nvidia.com.example.org/gpu": "", "x.amd.com/gpu": "",
	} {
		got, ok := gpu.VendorOf(resource)
		assert.Equal(t, want, got, resource)
		assert.Equal(t, want != "", ok, resource)
	}
}

func TestMeasures(t *testing.T) {
	m := gpu.Measured{gpu.Power: 70, gpu.Utilization: 0}
	assert.Equal(t, gpu.Measured{gpu.Utilization: 0}, m.Only(gpu.Utilization, gpu.MemoryUsed), "zero is known, what is absent is not")
	for measure, want := range map[gpu.Measure]bool{
		gpu.EngineActive: true, gpu.ComputeActive: true, gpu.TensorActive: true, gpu.MemoryActive: true,
		gpu.Utilization: false, gpu.Occupied: false, gpu.MemoryUsed: false, gpu.Power: false,
	} {
		assert.Equal(t, want, measure.IsAverage(), measure)
	}
}

func TestProcessesError(t *testing.T) {
	err := &gpu.ProcessesError{Err: errors.Join(gpu.ErrInUse)}
	assert.ErrorIs(t, err, gpu.ErrInUse)
	assert.EqualError(t, err, "in use")
}
