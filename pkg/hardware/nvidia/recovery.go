package nvidia

import (
	"fmt"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/tranche-dev/tranche/pkg/gpu"
)

// recoveryError is a GPU for which the driver requests a recovery action.
type recoveryError struct {
	PCIAddress string
	Action     nvml.DeviceGpuRecoveryAction
}

// recoveryErr returns a *recoveryError if the driver requests an action that concerns the
// GPU. The IMEX domain is about memory shared between nodes.
func recoveryErr(pciAddress string, action nvml.DeviceGpuRecoveryAction) error {
	switch action {
	case nvml.GPU_RECOVERY_ACTION_NONE, nvml.GPU_RECOVERY_ACTION_RECOVER_IMEX_DOMAIN:
		return nil
	}
	return &recoveryError{PCIAddress: pciAddress, Action: action}
}

func (e *recoveryError) Error() string {
	what, cure := e.explain()
	return fmt.Sprintf("GPU %s: the driver asks for %s: %s", e.PCIAddress, what, cure.on(e.PCIAddress))
}

// Cause implements gpu.CauseOf.
func (e *recoveryError) Cause() gpu.Cause { return gpu.CauseRecovery }

func (e *recoveryError) explain() (what string, c cure) {
	switch e.Action {
	case nvml.GPU_RECOVERY_ACTION_GPU_RESET:
		return "a reset of the GPU", cureReset
	case nvml.GPU_RECOVERY_ACTION_NODE_REBOOT:
		return "a reboot of the node", cureReboot
	case nvml.GPU_RECOVERY_ACTION_DRAIN_P2P:
		return "an end of its traffic with other GPUs", "drain the programs that use the GPU together with others"
	case nvml.GPU_RECOVERY_ACTION_DRAIN_AND_RESET:
		return "a reset of the GPU once nobody uses it", cureReset
	case nvml.GPU_RECOVERY_ACTION_BUS_RESET:
		return "a reset of its PCIe bus", cureReboot
	case nvml.GPU_RECOVERY_ACTION_SYSTEM_REBOOT:
		return "a reboot of the machine", cureReboot
	}
	return fmt.Sprintf("recovery action %d, which this version does not know", e.Action), cureSupport
}
