package nvidia

import (
	"context"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware/nvidia/session"
)

// CheckHealth implements hardware.Driver: it fails if the GPU does not answer or the
// driver requests a recovery action. It takes two short calls, and finds errors whose event
// was missed, except those after which the GPU answers as before and which older drivers do
// not keep track of.
func (d *Driver) CheckHealth(ctx context.Context, pciAddress string) error {
	_, err := d.examine(ctx, pciAddress)
	return err
}

// examine is CheckHealth. known reports whether the driver has recovery actions.
func (d *Driver) examine(ctx context.Context, pciAddress string) (known bool, err error) {
	return onGPU(ctx, d, pciAddress, (*handle).examine)
}

func (h *handle) examine() (known bool, err error) {
	// This call goes to the GPU. Many others are answered by the library.
	if _, err := h.TotalMemory(); err != nil {
		return false, err
	}
	action, known, err := h.recoveryAction()
	if err != nil {
		return known, err
	}
	return known, recoveryErr(h.PCIAddress, action)
}

// recoveryAction returns the action that the driver requests. known is false for drivers
// without recovery actions.
func (h *handle) recoveryAction() (action nvml.DeviceGpuRecoveryAction, known bool, err error) {
	value, known, err := h.FieldValue(nvml.FI_DEV_GET_GPU_RECOVERY_ACTION)
	return nvml.DeviceGpuRecoveryAction(value), known, err
}

// Recovered implements hardware.Driver. The GPU must answer, and the driver must not
// request a recovery action. That is enough for a GPU that was lost, and for the XIDs that a
// driver with recovery actions (R565) keeps track of. Otherwise the GPU must have been
// restarted since the event: the machine was booted, the driver was loaded (LoadID) or the
// GPU was reset (its energy counter is lower). A reset without such a trace is not seen; a
// reboot always is.
//
// The error is why the GPU is not healthy. False without an error means that it answers, but
// was not restarted. Callers should check several times: a failing GPU may answer now and then.
func (d *Driver) Recovered(ctx context.Context, e gpu.HealthEvent) (bool, error) {
	if !e.Fatal {
		return true, nil
	}
	known, err := d.examine(ctx, e.PCIAddress)
	if err != nil {
		return false, err
	}
	switch {
	case e.XID == 0: // the GPU was lost
		return true, nil
	case known && lookupXID(e.XID).tracked:
		return true, nil
	}
	return d.restarted(ctx, e)
}

// restarted reports whether the GPU was restarted since the event.
func (d *Driver) restarted(ctx context.Context, e gpu.HealthEvent) (bool, error) {
	load, err := d.LoadID()
	if err != nil {
		return false, err
	}
	if e.LoadID != "" && e.LoadID != load {
		return true, nil
	}
	energy, err := onGPU(ctx, d, e.PCIAddress, (*handle).energy)
	if err != nil {
		return false, err
	}
	return energy > 0 && energy < e.Energy, nil
}

// energy returns the energy that the GPU has used since the driver was loaded, in
// millijoules, zero if it does not count it.
func (h *handle) energy() (uint64, error) {
	energy, err := session.Ask(h.Task, "DeviceGetTotalEnergyConsumption", h.Device.GetTotalEnergyConsumption)
	if session.Unsupported(err) {
		return 0, nil
	}
	return energy, err
}
