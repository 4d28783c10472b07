package instance

import (
	"errors"
	"fmt"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/tranche-dev/tranche/pkg/hardware/mig"
	"github.com/tranche-dev/tranche/pkg/hardware/nvidia/session"
)

// Mode is a GPU's MIG mode, and how it can change.
type Mode struct {
	// Capable is false for a GPU without MIG.
	Capable bool
	// On is the mode now, Pending the one after the next reset.
	On, Pending bool
	// Switchable: we can change the mode without a reset.
	Switchable bool
	// NeedsReset: we can change the mode, with a reset of the GPU.
	NeedsReset bool
	// Why is the reason why the mode is not switchable.
	Why string
}

// Mode reads the mode. It may have changed since the last time.
func (g *GPU) Mode() (Mode, error) {
	type modes struct{ current, pending int }
	now, err := session.Ask(g.Task, "DeviceGetMigMode", func() (modes, nvml.Return) {
		current, pending, ret := g.Device.GetMigMode()
		return modes{current, pending}, ret
	})
	if session.Unsupported(err) {
		return Mode{}, nil
	}
	if err != nil {
		return Mode{}, err
	}
	m := Mode{
		Capable: true,
		On:      now.current == nvml.DEVICE_MIG_ENABLE,
		Pending: now.pending == nvml.DEVICE_MIG_ENABLE,
	}
	virtual, err := g.isVirtual()
	if err != nil {
		return m, err
	}
	if virtual {
		m.Why = "the GPU is a vGPU, whose mode belongs to the hypervisor"
		return m, nil
	}
	if m.Switchable, m.Why, err = g.switchesWithoutReset(); err != nil {
		return m, err
	}
	m.NeedsReset = !m.Switchable
	return m, nil
}

// switchesWithoutReset tells whether the GPU can change its MIG mode without a reset, and
// why not. The driver reports it (NVML_FI_DEV_IS_RESETLESS_MIG_SUPPORTED, nvml.h). With
// drivers that do not have the field, the compute capability decides: from Hopper on.
func (g *GPU) switchesWithoutReset() (bool, string, error) {
	supported, known, err := g.FieldValue(nvml.FI_DEV_IS_RESETLESS_MIG_SUPPORTED)
	switch {
	case err != nil:
		return false, "", err
	case known && supported == 0:
		return false, "the driver says that the GPU needs a reset for it", nil
	case known:
		return true, "", nil
	}
	major, minor, err := g.ComputeCapability()
	if err != nil || major >= mig.Hopper {
		return err == nil, "", err
	}
	return false, fmt.Sprintf("compute capability %d.%d needs a reset of the GPU for it", major, minor), nil
}

// isVirtual tells whether the GPU is a vGPU in a guest.
func (g *GPU) isVirtual() (bool, error) {
	mode, err := session.Ask(g.Task, "DeviceGetVirtualizationMode", g.Device.GetVirtualizationMode)
	if session.Unsupported(err) {
		return false, nil
	}
	return mode == nvml.GPU_VIRTUALIZATION_MODE_VGPU, err
}

// setMIG sets the MIG mode and reads it back. If it fails, it restores the pending mode,
// so that the next reset of the GPU does not bring a mode that nobody wants any more.
func (g *GPU) setMIG(want bool) error {
	mode, err := g.Mode()
	if err != nil {
		return err
	}
	switch {
	case mode.On == want && mode.Pending == want:
		return nil
	case !mode.Capable && want:
		return fmt.Errorf("GPU %s does not know MIG", g.PCIAddress)
	case !mode.Capable:
		return nil
	case mode.On == want && !mode.Switchable:
		return nil // the mode is right until a reset
	case !mode.Switchable:
		return fmt.Errorf("GPU %s has MIG mode %s and must have it %s: %s", g.PCIAddress, OnOff(mode.On), OnOff(want), mode.Why)
	}
	if mode.On != want {
		if err := g.refuseClients("switch MIG mode " + OnOff(want)); err != nil {
			return err
		}
	}
	if err := g.switchMIG(want); err != nil {
		if back := g.undoing().putBackMIG(mode.On); back != nil {
			return fmt.Errorf("%w; and the pending mode could not be put back: %w", err, back)
		}
		return err
	}
	return nil
}

// switchMIG switches the mode and checks that it did.
func (g *GPU) switchMIG(want bool) error {
	const call = "DeviceSetMigMode"
	status, err := session.Ask(g.Task, call, func() (nvml.Return, nvml.Return) { return g.Device.SetMigMode(modeNumber(want)) })
	if err != nil {
		return g.explainClients(err, wholeGPUClients)
	}
	// The call succeeds even if the new mode is only pending. The activation status tells.
	if status != nvml.SUCCESS {
		err := &session.CallError{Subject: g.Subject(), Call: call + " (activation)", Return: status}
		return g.explainClients(err, wholeGPUClients)
	}
	mode, err := g.Mode()
	if err != nil {
		return err
	}
	if mode.On != want || mode.Pending != want {
		return fmt.Errorf("GPU %s: MIG mode was set %s, but it is %s now and %s after a reset",
			g.PCIAddress, OnOff(want), OnOff(mode.On), OnOff(mode.Pending))
	}
	return nil
}

// putBackMIG sets the pending mode to the current one.
func (g *GPU) putBackMIG(on bool) error {
	mode, err := g.Mode()
	if err != nil {
		return err
	}
	if mode.On == on && mode.Pending == on {
		return nil
	}
	_, err = session.Ask(g.Task, "DeviceSetMigMode", func() (nvml.Return, nvml.Return) { return g.Device.SetMigMode(modeNumber(on)) })
	if errors.Is(err, nvml.ERROR_IN_USE) {
		return nil // a GPU in use did not accept the other mode either
	}
	return err
}

func modeNumber(on bool) int {
	if on {
		return nvml.DEVICE_MIG_ENABLE
	}
	return nvml.DEVICE_MIG_DISABLE
}

// OnOff is a MIG mode in words.
func OnOff(on bool) string {
	if on {
		return "on"
	}
	return "off"
}
