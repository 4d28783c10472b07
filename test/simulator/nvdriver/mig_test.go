package nvdriver

import (
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/test/simulator/memory"
	"github.com/tranche-dev/tranche/test/simulator/nvstate"
)

// modes returns current and pending MIG mode.
func modes(t *testing.T, d nvml.Device) [2]int {
	t.Helper()
	current, pending, ret := d.GetMigMode()
	require.Equal(t, nvml.SUCCESS, ret)
	return [2]int{current, pending}
}

func TestMIGModeOnHopperAppliesAtOnce(t *testing.T) {
	n, d := machineAndGPU(t, "h100x8")
	assert.Equal(t, [2]int{0, 0}, modes(t, d))
	migOn(t, d)
	assert.Equal(t, [2]int{1, 1}, modes(t, d))
	assert.Equal(t, [2]int{0, 0}, modes(t, handleOf(t, n, 1)), "the other GPUs stay")
	migOn(t, d)
	count, _ := d.GetMaxMigDeviceCount()
	assert.Equal(t, 7, count)

	gi := makeGI(t, d, "1g.10gb", 0)
	assert.Equal(t, [2]nvml.Return{nvml.ERROR_IN_USE, nvml.SUCCESS}, setMIG(d, nvml.DEVICE_MIG_DISABLE))
	assert.Equal(t, [2]int{1, 1}, modes(t, d), "nothing noted")
	require.Equal(t, nvml.SUCCESS, gi.Destroy())
	assert.Equal(t, [2]nvml.Return{nvml.SUCCESS, nvml.SUCCESS}, setMIG(d, nvml.DEVICE_MIG_DISABLE))
	assert.Equal(t, [2]int{0, 0}, modes(t, d))

	assert.Equal(t, [2]nvml.Return{nvml.ERROR_INVALID_ARGUMENT, nvml.SUCCESS}, setMIG(d, 2))
}

func TestMIGModeWithAClientStaysPending(t *testing.T) {
	n, d := machineAndGPU(t, "h100x8")
	require.NoError(t, AddProcess(n.root, Process{GPU: pciOf(d), PID: 7}))
	assert.Equal(t, [2]nvml.Return{nvml.SUCCESS, nvml.ERROR_IN_USE}, setMIG(d, nvml.DEVICE_MIG_ENABLE), "the call succeeds, the activation does not")
	assert.Equal(t, [2]int{0, 1}, modes(t, d))
	require.NoError(t, RemoveProcess(n.root, 7))
	assert.Equal(t, [2]int{0, 1}, modes(t, d), "nothing happens by itself")
	migOn(t, d)
	assert.Equal(t, [2]int{1, 1}, modes(t, d))
}

func TestMIGModeOnAmpereResetsTheGPU(t *testing.T) {
	n, d := machineAndGPU(t, "a100-40x8")
	assert.Equal(t, [2]int{1, 1}, modes(t, d))
	assert.Equal(t, [2]nvml.Return{nvml.SUCCESS, nvml.SUCCESS}, setMIG(d, nvml.DEVICE_MIG_DISABLE))
	assert.Equal(t, [2]int{0, 0}, modes(t, d))
	_, ret := tryGI(t, d, "1g.5gb", 0)
	assert.Equal(t, nvml.ERROR_NOT_SUPPORTED, ret)

	require.NoError(t, AddProcess(n.root, Process{GPU: pciOf(d), PID: 7}))
	assert.Equal(t, [2]nvml.Return{nvml.SUCCESS, nvml.ERROR_IN_USE}, setMIG(d, nvml.DEVICE_MIG_ENABLE))
	assert.Equal(t, [2]int{0, 1}, modes(t, d))
}

// pending leaves the first GPU's MIG mode, on before, off after the next reset.
func pending(t *testing.T, root string) nvml.Device {
	t.Helper()
	d := handleOf(t, machineIn(t, "a100-40x8", root), 0)
	require.NoError(t, SetFaults(root, Faults{Resets: []nvstate.ResetFault{{GPU: pciOf(d), Refused: true}}}))
	activation, ret := d.SetMigMode(nvml.DEVICE_MIG_DISABLE)
	require.Equal(t, nvml.SUCCESS, ret)
	assert.Equal(t, nvml.ERROR_RESET_REQUIRED, activation)
	assert.Equal(t, [2]int{1, 0}, modes(t, d))
	return d
}

func TestMIGModeOfAGPUThatCannotBeReset(t *testing.T) {
	for name, restart := range map[string]func(root, pci string) error{
		"reset":  ResetGPU,
		"reload": func(root, _ string) error { return ReloadDriver(root) },
		"reboot": func(root, _ string) error { return Reboot(root) },
	} {
		t.Run(name, func(t *testing.T) {
			root := memory.TempDir(t)
			d := pending(t, root)
			require.NoError(t, restart(root, pciOf(d)))
			assert.Equal(t, [2]int{0, 0}, modes(t, d))
		})
	}
	root := memory.TempDir(t)
	d := pending(t, root)
	assert.Equal(t, [2]nvml.Return{nvml.SUCCESS, nvml.SUCCESS}, setMIG(d, nvml.DEVICE_MIG_ENABLE), "putting it back needs no reset")
	assert.Equal(t, [2]int{1, 1}, modes(t, d))

	require.NoError(t, AddProcess(root, Process{GPU: pciOf(d), PID: 7}))
	assert.ErrorContains(t, ResetGPU(root, pciOf(d)), "in use by process 7")
	assert.ErrorContains(t, ResetGPU(root, "0000:00:00.0"), "no GPU")
}

func TestProfileInfoV3HasTheName(t *testing.T) {
	inv := parsed(t, "gpus: [{model: RTX-PRO-6000-Blackwell-96GB, migMode: enabled}]")
	d, ok := handleOf(t, open(t, inv, memory.TempDir(t)), 0).(interface {
		GetGpuInstanceProfileInfoV3(enum int) (nvml.GpuInstanceProfileInfo_v3, nvml.Return)
	})
	require.True(t, ok)
	var names []string
	graphics := 0
	for enum := range nvml.GPU_INSTANCE_PROFILE_COUNT {
		info, ret := d.GetGpuInstanceProfileInfoV3(enum)
		if ret != nvml.SUCCESS {
			continue
		}
		names = append(names, text(info.Name[:]))
		if info.Capabilities&nvml.GPU_INSTANCE_PROFILE_CAPS_GFX != 0 {
			graphics++
		}
	}
	assert.Equal(t, []string{
		"MIG 1g.24gb", "MIG 2g.48gb", "MIG 4g.96gb", "MIG 1g.24gb+me", "MIG 1g.24gb+gfx", "MIG 2g.48gb+gfx", "MIG 4g.96gb+gfx",
		"MIG 1g.24gb-me", "MIG 2g.48gb-me", "MIG 1g.24gb+me.all", "MIG 2g.48gb+me.all",
	}, names)
	assert.Equal(t, 3, graphics)
}

func TestNilArguments(t *testing.T) {
	d := handleOf(t, machine(t, "a100-40x8"), 0)
	info := profileInfo(t, d, "1g.5gb")
	gi := makeGI(t, d, "1g.5gb", 0)
	for what, ret := range map[string]nvml.Return{
		"placements":       second(d.GetGpuInstancePossiblePlacements(nil)),
		"capacity":         second(d.GetGpuInstanceRemainingCapacity(nil)),
		"create":           second(d.CreateGpuInstance(nil)),
		"create placement": second(d.CreateGpuInstanceWithPlacement(&info, nil)),
		"create profile":   second(d.CreateGpuInstanceWithPlacement(nil, &nvml.GpuInstancePlacement{})),
		"list":             second(d.GetGpuInstances(nil)),
		"list no count":    second(d.GetGpuInstances(&nvml.GpuInstanceProfileInfo{Id: 19})),
		"ci":               second(gi.CreateComputeInstance(nil)),
		"ci placement":     second(gi.CreateComputeInstanceWithPlacement(&nvml.ComputeInstanceProfileInfo{}, nil)),
		"ci placements":    second(gi.GetComputeInstancePossiblePlacements(nil)),
		"ci capacity":      second(gi.GetComputeInstanceRemainingCapacity(nil)),
		"ci list":          second(gi.GetComputeInstances(nil)),
	} {
		assert.Equal(t, nvml.ERROR_INVALID_ARGUMENT, ret, what)
	}
}
