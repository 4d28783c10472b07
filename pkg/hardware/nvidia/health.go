package nvidia

import (
	"context"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware/nvidia/session"
	"github.com/tranche-dev/tranche/pkg/hardware/nvidia/xid"
)

// CheckHealth asks a GPU whether it is there and whether the driver wants
// something done about it. It costs two short calls, and is what finds errors
// whose event was missed. What it cannot see are fatal errors after which a
// GPU answers as before and that older drivers keep no account of: those are
// known by their event alone.
func (d *Driver) CheckHealth(ctx context.Context, pciAddress string) error {
	_, err := d.examine(ctx, pciAddress)
	return err
}

// examine is CheckHealth. known tells whether the driver has recovery actions.
func (d *Driver) examine(ctx context.Context, pciAddress string) (known bool, err error) {
	return onGPU(ctx, d, pciAddress, (*gpuHandle).examine)
}

func (c *gpuHandle) examine() (known bool, err error) {
	// A handle and much that is asked of it come out of the library's memory;
	// this call goes to the GPU.
	if _, err := c.TotalMemory(); err != nil {
		return false, err
	}
	action, known, err := c.recoveryAction()
	if err != nil {
		return known, err
	}
	return known, xid.Recovery(c.PCIAddress, action)
}

// recoveryAction is what the driver wants done about the GPU. known is false
// for drivers that do not tell.
func (c *gpuHandle) recoveryAction() (action nvml.DeviceGpuRecoveryAction, known bool, err error) {
	value, known, err := c.FieldValue(nvml.FI_DEV_GET_GPU_RECOVERY_ACTION)
	return nvml.DeviceGpuRecoveryAction(value), known, err
}

// Recovered tells whether what a fatal event reported is over. The GPU must
// answer and the driver ask for nothing; and further, by what the event was:
//
//   - A GPU that was lost needs no more than that.
//   - Of most fatal XIDs the driver keeps account itself, if it has recovery
//     actions (R565): nothing more is needed either.
//   - Otherwise the GPU must have started anew since: the machine booted, the
//     driver was loaded (LoadID) or the GPU was reset (its energy counter fell
//     back). A reset that leaves no such trace is not seen; a reboot always is.
//
// The error says why a GPU is not well; false without an error means that it
// answers, but has not started anew. A caller should want to hear true several
// times before it believes it: a GPU that is dying may answer now and then.
func (d *Driver) Recovered(ctx context.Context, e gpu.HealthEvent) (bool, error) {
	if !e.Fatal {
		return true, nil
	}
	known, err := d.examine(ctx, e.PCIAddress)
	if err != nil {
		return false, err
	}
	switch {
	case e.XID == 0: // it was lost
		return true, nil
	case known && xid.Lookup(e.XID).Ends == xid.WithDriver:
		return true, nil
	}
	return d.startedAnew(ctx, e)
}

// startedAnew tells whether the GPU has started since the event.
func (d *Driver) startedAnew(ctx context.Context, e gpu.HealthEvent) (bool, error) {
	load, err := d.LoadID()
	if err != nil {
		return false, err
	}
	if e.LoadID != "" && e.LoadID != load {
		return true, nil
	}
	energy, err := onGPU(ctx, d, e.PCIAddress, (*gpuHandle).energy)
	if err != nil {
		return false, err
	}
	return energy > 0 && energy < e.Energy, nil
}

// energy is what the GPU has used up since the driver brought it up, in
// millijoules; zero when the GPU does not count it.
func (c *gpuHandle) energy() (uint64, error) {
	energy, err := session.Ask(c.Task, "DeviceGetTotalEnergyConsumption", c.Device.GetTotalEnergyConsumption)
	if session.Unsupported(err) {
		return 0, nil
	}
	return energy, err
}
