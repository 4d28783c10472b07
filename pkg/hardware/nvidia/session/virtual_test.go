package session_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/test/nvidiatest"
)

// inAVM is an A100 in a virtual machine that cannot reset it: a switch of the MIG mode leaves it
// in need of a reset (kubernetes-sigs/dra-driver-nvidia-gpu#883).
type inAVM struct {
	nvml.Device
	vm *vm
}

type vm struct {
	mu      sync.Mutex
	told    nvml.GpuVirtualizationMode
	tries   int
	pending int
}

func (d inAVM) GetVirtualizationMode() (nvml.GpuVirtualizationMode, nvml.Return) {
	return d.vm.told, nvml.SUCCESS
}

func (d inAVM) GetMigMode() (int, int, nvml.Return) {
	d.vm.mu.Lock()
	defer d.vm.mu.Unlock()
	return nvml.DEVICE_MIG_DISABLE, d.vm.pending, nvml.SUCCESS
}

func (d inAVM) SetMigMode(mode int) (nvml.Return, nvml.Return) {
	d.vm.mu.Lock()
	defer d.vm.mu.Unlock()
	d.vm.tries++
	d.vm.pending = mode
	return nvml.ERROR_RESET_REQUIRED, nvml.SUCCESS
}

func (d inAVM) GetMemoryInfo() (nvml.Memory, nvml.Return) {
	d.vm.mu.Lock()
	defer d.vm.mu.Unlock()
	if d.vm.tries > 0 {
		return nvml.Memory{}, nvml.ERROR_RESET_REQUIRED
	}
	return d.Device.GetMemoryInfo()
}

func a100InAVM(t *testing.T, told nvml.GpuVirtualizationMode) (*machine, *vm) {
	t.Helper()
	v := &vm{told: told}
	return simulated(t, "a100-40x8-mig-off", trapping(func(d nvml.Device) nvml.Device { return inAVM{d, v} }), func(c *Config) {
		c.Run = func(context.Context, string, ...string) ([]byte, error) {
			return []byte("Resetting GPU is not supported."), errors.New("exit status 3")
		}
	}), v
}

func TestPassedThroughGPUIsNotSwitchedInVain(t *testing.T) {
	m, v := a100InAVM(t, nvml.GPU_VIRTUALIZATION_MODE_PASSTHROUGH)
	err := m.SetMIG(t.Context(), m.GPUs()[0].PCIAddress, true, false)
	require.ErrorIs(t, err, gpu.ErrNeedsReset)
	require.ErrorContains(t, err, "passed through to this virtual machine")
	assert.Zero(t, v.tries)

	require.Error(t, m.SetMIG(t.Context(), m.GPUs()[0].PCIAddress, true, true))
	assert.NotZero(t, v.tries, "before a reboot it is requested")
	assert.Equal(t, nvml.DEVICE_MIG_ENABLE, v.pending)
}

func TestGPUThatASwitchMadeUnusable(t *testing.T) {
	m, _ := a100InAVM(t, nvml.GPU_VIRTUALIZATION_MODE_NONE)
	whole := m.Whole()
	err := m.SetMIG(t.Context(), whole.GPU, true, false)
	require.ErrorContains(t, err, "the GPU is unusable until the node is rebooted")
	assert.NotContains(t, err.Error(), "it stays off")
	_, err = m.Create(t.Context(), whole)
	require.ErrorIs(t, err, nvml.ERROR_RESET_REQUIRED, "nobody gets it")
}

func TestDriverThatDoesNotSwitchMIG(t *testing.T) {
	for inventory, needsReset := range map[string]bool{"h100x8": false, "a100-40x8-mig-off": true} {
		m := simulated(t, inventory)
		m.Fail("SetMigMode", nvml.ERROR_NOT_SUPPORTED, 0)
		address := m.GPUs()[0].PCIAddress
		err := m.SetMIG(t.Context(), address, true, false)
		require.ErrorIs(t, err, gpu.ErrNotSupported, "needs a reset: %v", needsReset)
		assert.ErrorContains(t, err, "this driver does not switch MIG mode on GPU "+address)
	}
}

// twins is a GPU with two profiles whose names, where they are computed, are the same.
type twins struct{ nvml.Device }

func (d twins) GetGpuInstanceProfileInfo(enum int) (nvml.GpuInstanceProfileInfo, nvml.Return) {
	info, ret := d.Device.GetGpuInstanceProfileInfo(enum)
	if enum == nvml.GPU_INSTANCE_PROFILE_1_SLICE_REV2 && ret == nvml.SUCCESS {
		first, _ := d.Device.GetGpuInstanceProfileInfo(nvml.GPU_INSTANCE_PROFILE_1_SLICE)
		info.MemorySizeMB = first.MemorySizeMB
	}
	return info, ret
}

func TestProfileThatIsDroppedIsLogged(t *testing.T) {
	nvidiatest.InProcess(t)
	var mu sync.Mutex
	said := ""
	m := simulated(t, "h100x8", trapping(func(d nvml.Device) nvml.Device { return twins{d} }), func(c *Config) {
		c.Logger = funcr.New(func(_, args string) {
			mu.Lock()
			defer mu.Unlock()
			said += args
		}, funcr.Options{})
	})
	m.GPUs()
	mu.Lock()
	defer mu.Unlock()
	assert.Contains(t, said, "A MIG profile is not offered")
	assert.Contains(t, said, `"profile"="1g.10gb"`)
}
