package nvdriver

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"sigs.k8s.io/yaml"

	"github.com/tranche-dev/tranche/pkg/publish/models"
	"github.com/tranche-dev/tranche/test/simulator/disk"
)

// Recovery is what the driver says must be done about a GPU before it is healthy
// again (NVML_FI_DEV_GET_GPU_RECOVERY_ACTION).
type Recovery struct {
	// GPU is a PCI address.
	GPU string `json:"gpu"`
	// Action is one of RecoveryActions.
	Action string `json:"action"`
}

// recoveryActions are nvml.h's nvmlDeviceGpuRecoveryAction_t.
var recoveryActions = map[string]nvml.DeviceGpuRecoveryAction{
	"reset":             nvml.GPU_RECOVERY_ACTION_GPU_RESET,
	"reboot":            nvml.GPU_RECOVERY_ACTION_NODE_REBOOT,
	"drainP2P":          nvml.GPU_RECOVERY_ACTION_DRAIN_P2P,
	"drainAndReset":     nvml.GPU_RECOVERY_ACTION_DRAIN_AND_RESET,
	"recoverIMEXDomain": nvml.GPU_RECOVERY_ACTION_RECOVER_IMEX_DOMAIN,
	"busReset":          nvml.GPU_RECOVERY_ACTION_BUS_RESET,
	"systemReboot":      nvml.GPU_RECOVERY_ACTION_SYSTEM_REBOOT,
}

// RecoveryActions lists the names that Recovery.Action knows.
func RecoveryActions() []string { return slices.Sorted(maps.Keys(recoveryActions)) }

func (r Recovery) check() error {
	if !models.IsPCIAddress(r.GPU) {
		return fmt.Errorf("gpu: %q is not an address like 0000:1b:00.0", r.GPU)
	}
	if _, ok := recoveryActions[r.Action]; !ok {
		return fmt.Errorf("action: unknown action %q: choose one of %s", r.Action, strings.Join(RecoveryActions(), ", "))
	}
	return nil
}

// firstRecoveryDriver is the first driver branch that knows the field (NVIDIA's
// XID catalog links XIDs to it from R565 on).
const firstRecoveryDriver = 565

// GetFieldValues knows the recovery action, and whether MIG mode changes without a
// reset. As in nvml.h each value has an answer of its own, and the call succeeds "if any values
// were populated". What it answers otherwise is not documented.
func (d *device) GetFieldValues(values []nvml.FieldValue) nvml.Return {
	if ret := d.check("GetFieldValues"); ret != nvml.SUCCESS {
		return ret
	}
	ret := nvml.ERROR_INVALID_ARGUMENT
	for i := range values {
		v := &values[i]
		v.NvmlReturn = uint32(nvml.ERROR_NOT_SUPPORTED)
		value, known := d.fieldValue(v.FieldId)
		if known {
			ret = nvml.SUCCESS
			v.NvmlReturn, v.ValueType = uint32(nvml.SUCCESS), uint32(nvml.VALUE_TYPE_UNSIGNED_INT)
			binary.NativeEndian.PutUint32(v.Value[:], value)
		}
	}
	return ret
}

func (d *device) fieldValue(field uint32) (value uint32, known bool) {
	m := d.gpu().Model
	switch {
	case field == nvml.FI_DEV_GET_GPU_RECOVERY_ACTION && branchOf(d.nv.inventory.DriverVersion) >= firstRecoveryDriver:
		return uint32(d.recoveryAction()), true
	case field == nvml.FI_DEV_IS_RESETLESS_MIG_SUPPORTED && m.HasMIG() && d.nv.library.resetless:
		if m.KeepsMIGMode() {
			return 0, true
		}
		return 1, true
	}
	return 0, false
}

func (d *device) recoveryAction() nvml.DeviceGpuRecoveryAction {
	faults, _ := d.nv.faults.Read()
	for _, r := range faults.Recovery {
		if r.GPU == d.gpu().PCI {
			return recoveryActions[r.Action]
		}
	}
	return nvml.GPU_RECOVERY_ACTION_NONE
}

// idleMilliwatts is what a simulated GPU draws, whatever it does.
const idleMilliwatts = 70_000

// GetTotalEnergyConsumption is in millijoules "since the driver was last
// reloaded" (nvml.h). It is never zero: no GPU answers before it has used some.
func (d *device) GetTotalEnergyConsumption() (uint64, nvml.Return) {
	g, ret := d.view("GetTotalEnergyConsumption")
	if ret != nvml.SUCCESS {
		return 0, ret
	}
	return max(1, uint64(time.Since(g.Started).Microseconds())*idleMilliwatts/1_000_000), nvml.SUCCESS
}

// recovered removes from faults.yaml what a restart of the GPUs repairs:
// the recovery actions, of one GPU or (with no address) of all.
func recovered(root, pci string) error {
	return changeFaults(root, func(f *Faults) bool {
		before := len(f.Recovery)
		f.Recovery = slices.DeleteFunc(f.Recovery, func(r Recovery) bool { return pci == "" || r.GPU == pci })
		return len(f.Recovery) != before
	})
}

// changeFaults rewrites faults.yaml when change says that it did something.
func changeFaults(root string, change func(*Faults) bool) error {
	faults, err := currentFaults(root)
	if err != nil || !change(faults) {
		return err
	}
	data, err := yaml.Marshal(faults)
	if err != nil {
		return err
	}
	return disk.ReplaceFile(faultsPath(root), data)
}
