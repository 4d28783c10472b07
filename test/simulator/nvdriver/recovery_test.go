package nvdriver

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/test/simulator/disk"
	"github.com/tranche-dev/tranche/test/simulator/memory"
)

// recoveryOf reads the recovery action and the answer of the field.
func recoveryOf(t *testing.T, d nvml.Device) (nvml.DeviceGpuRecoveryAction, nvml.Return) {
	t.Helper()
	values := []nvml.FieldValue{{FieldId: nvml.FI_DEV_ECC_CURRENT}, {FieldId: nvml.FI_DEV_GET_GPU_RECOVERY_ACTION}}
	require.Equal(t, nvml.SUCCESS, d.GetFieldValues(values))
	assert.Equal(t, nvml.ERROR_NOT_SUPPORTED, nvml.Return(values[0].NvmlReturn), "each value has an answer of its own")
	return nvml.DeviceGpuRecoveryAction(binary.NativeEndian.Uint32(values[1].Value[:])), nvml.Return(values[1].NvmlReturn)
}

func TestRecoveryActionsLastUntilTheyAreDone(t *testing.T) {
	for name, restart := range map[string]func(root, pci string) error{
		"reset":  ResetGPU,
		"reload": func(root, _ string) error { return ReloadDriver(root) },
		"reboot": func(root, _ string) error { return Reboot(root) },
	} {
		t.Run(name, func(t *testing.T) {
			root := memory.TempDir(t)
			n := machineIn(t, "h100x8", root)
			d, other := handleOf(t, n, 0), handleOf(t, n, 1)
			require.NoError(t, SetFaults(root, Faults{
				Lost:     []string{pciOf(handleOf(t, n, 2))},
				Recovery: []Recovery{{GPU: pciOf(d), Action: "reset"}, {GPU: pciOf(other), Action: "drainP2P"}},
			}))
			action, ret := recoveryOf(t, d)
			assert.Equal(t, nvml.SUCCESS, ret)
			assert.Equal(t, nvml.GPU_RECOVERY_ACTION_GPU_RESET, action)
			before, ret := d.GetTotalEnergyConsumption()
			require.Equal(t, nvml.SUCCESS, ret)
			require.NoError(t, restart(root, pciOf(d)))
			action, _ = recoveryOf(t, d)
			assert.Equal(t, nvml.GPU_RECOVERY_ACTION_NONE, action)
			action, _ = recoveryOf(t, other)
			assert.Equal(t, name == "reset", action == nvml.GPU_RECOVERY_ACTION_DRAIN_P2P, "a reset is one GPU's")
			after, _ := d.GetTotalEnergyConsumption()
			assert.Less(t, after, before)
			faults, err := currentFaults(root)
			require.NoError(t, err)
			assert.Len(t, faults.Lost, 1, "other faults stay")
		})
	}
}

func TestOldDriversHaveNoRecoveryAction(t *testing.T) {
	n := open(t, parsed(t, "driverVersion: \"550.54.15\"\ngpus: [{model: H100-80GB}]"), memory.TempDir(t))
	values := []nvml.FieldValue{{FieldId: nvml.FI_DEV_GET_GPU_RECOVERY_ACTION}}
	assert.Equal(t, nvml.ERROR_INVALID_ARGUMENT, handleOf(t, n, 0).GetFieldValues(values), "it knows none of the fields")
	assert.Equal(t, nvml.ERROR_NOT_SUPPORTED, nvml.Return(values[0].NvmlReturn))
}

func TestBrokenRecoveryNamesTheKey(t *testing.T) {
	for yaml, want := range map[string]string{
		`recovery: [{gpu: x, action: reset}]`:             `recovery[0].gpu: "x" is not an address`,
		`recovery: [{gpu: "0000:1b:00.0", action: pray}]`: `recovery[0].action: unknown action "pray": choose one of busReset, drainAndReset,`,
	} {
		_, err := ParseFaults([]byte(yaml))
		assert.ErrorContains(t, err, want)
	}
}

func TestNoTwoLoadsShareAnInode(t *testing.T) {
	root := memory.TempDir(t)
	machineIn(t, "l4x4", root)
	seen := map[uint64]bool{}
	for range 5 {
		id, err := disk.Identify(filepath.Join(root, "sys/module/nvidia"))
		require.NoError(t, err)
		assert.False(t, seen[id.Inode])
		seen[id.Inode] = true
		require.NoError(t, ReloadDriver(root))
	}
	entries, err := os.ReadDir(filepath.Join(root, "sys/module"))
	require.NoError(t, err)
	assert.Len(t, entries, 1, "and the old ones are out of sight")
}

func TestMemoryOfProcesses(t *testing.T) {
	n, d := machineAndGPU(t, "h100x8")
	two := 2
	require.NoError(t, SetFaults(n.root, Faults{Processes: []Process{{GPU: pciOf(d), GPUInstance: &two, PID: 42, Name: "python"}}}))
	memory, ret := d.GetMemoryInfo_v2()
	require.Equal(t, nvml.SUCCESS, ret)
	assert.EqualValues(t, 512<<20, memory.Used)
	assert.Equal(t, memory.Total, memory.Used+memory.Free+memory.Reserved)
}
