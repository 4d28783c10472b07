package instance

import (
	"errors"
	"fmt"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/tranche-dev/tranche/pkg/hardware/mig"
	"github.com/tranche-dev/tranche/pkg/hardware/nvidia/session"
)

// Mode is a GPU's MIG mode and what may be done about it.
type Mode struct {
	// Capable is false for a GPU that does not know MIG.
	Capable bool
	// On is the mode now, Pending the one after the next reset.
	On, Pending bool
	// Switchable is true when the mode can be changed without a reset, and we
	// are the ones to change it.
	Switchable bool
	// NeedsReset is true when the mode is ours to change, by a reset of the GPU.
	NeedsReset bool
	// Why says why the mode is not switchable.
	Why string
}

// Mode reads the mode from the GPU. It is read at each use: what it was
// when the plugin started says nothing.
func (c *GPU) Mode() (Mode, error) {
	type modes struct{ current, pending int }
	now, err := session.Ask(c.Task, "DeviceGetMigMode", func() (modes, nvml.Return) {
		current, pending, ret := c.Device.GetMigMode()
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
	virtual, err := c.isVirtual()
	if err != nil {
		return m, err
	}
	if virtual {
		m.Why = "the GPU is a vGPU, whose mode belongs to the hypervisor"
		return m, nil
	}
	if m.Switchable, m.Why, err = c.switchesWithoutReset(); err != nil {
		return m, err
	}
	m.NeedsReset = !m.Switchable
	return m, nil
}

// switchesWithoutReset tells whether the GPU can change its MIG mode without a reset,
// and why not. The driver tells (NVML_FI_DEV_IS_RESETLESS_MIG_SUPPORTED, nvml.h); of
// drivers that do not know the field, the compute capability does: from Hopper on.
func (c *GPU) switchesWithoutReset() (bool, string, error) {
	supported, known, err := c.FieldValue(nvml.FI_DEV_IS_RESETLESS_MIG_SUPPORTED)
	switch {
	case err != nil:
		return false, "", err
	case known && supported == 0:
		return false, "the driver says that the GPU needs a reset for it", nil
	case known:
		return true, "", nil
	}
	major, minor, err := c.ComputeCapability()
	if err != nil || major >= mig.Hopper {
		return err == nil, "", err
	}
	return false, fmt.Sprintf("compute capability %d.%d needs a reset of the GPU for it", major, minor), nil
}

// isVirtual tells whether the GPU is a vGPU in a guest.
func (c *GPU) isVirtual() (bool, error) {
	mode, err := session.Ask(c.Task, "DeviceGetVirtualizationMode", c.Device.GetVirtualizationMode)
	if session.Unsupported(err) {
		return false, nil
	}
	return mode == nvml.GPU_VIRTUALIZATION_MODE_VGPU, err
}

// setMIG makes the MIG mode what it should be, and believes it only after
// reading it back. On failure the pending mode is put back, so that the next
// reset of the GPU does not bring what nobody asked for any more.
func (c *GPU) setMIG(want bool) error {
	mode, err := c.Mode()
	if err != nil {
		return err
	}
	switch {
	case mode.On == want && mode.Pending == want:
		return nil
	case !mode.Capable && want:
		return fmt.Errorf("GPU %s does not know MIG", c.PCIAddress)
	case !mode.Capable:
		return nil
	case mode.On == want && !mode.Switchable:
		return nil // a reset will change it; until then it is right
	case !mode.Switchable:
		return fmt.Errorf("GPU %s has MIG mode %s and must have it %s: %s", c.PCIAddress, OnOff(mode.On), OnOff(want), mode.Why)
	}
	if mode.On != want {
		if err := c.refuseClients("switch MIG mode " + OnOff(want)); err != nil {
			return err
		}
	}
	if err := c.switchMIG(want); err != nil {
		if back := c.undoing().putBackMIG(mode.On); back != nil {
			return fmt.Errorf("%w; and the pending mode could not be put back: %w", err, back)
		}
		return err
	}
	return nil
}

// switchMIG switches the mode and checks that it did.
func (c *GPU) switchMIG(want bool) error {
	const call = "DeviceSetMigMode"
	status, err := session.Ask(c.Task, call, func() (nvml.Return, nvml.Return) { return c.Device.SetMigMode(modeNumber(want)) })
	if err != nil {
		return c.explainClients(err, wholeGPUClients)
	}
	// The call succeeds even when the new mode is only pending: what became of
	// it is in the activation status.
	if status != nvml.SUCCESS {
		err := &session.CallError{Subject: c.Subject(), Call: call + " (activation)", Return: status}
		return c.explainClients(err, wholeGPUClients)
	}
	mode, err := c.Mode()
	if err != nil {
		return err
	}
	if mode.On != want || mode.Pending != want {
		return fmt.Errorf("GPU %s: MIG mode was set %s, but it is %s now and %s after a reset",
			c.PCIAddress, OnOff(want), OnOff(mode.On), OnOff(mode.Pending))
	}
	return nil
}

// putBackMIG makes the pending mode the current one again.
func (c *GPU) putBackMIG(on bool) error {
	mode, err := c.Mode()
	if err != nil {
		return err
	}
	if mode.On == on && mode.Pending == on {
		return nil
	}
	_, err = session.Ask(c.Task, "DeviceSetMigMode", func() (nvml.Return, nvml.Return) { return c.Device.SetMigMode(modeNumber(on)) })
	if errors.Is(err, nvml.ERROR_IN_USE) {
		return nil // refused in use: then it was never changed either
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
