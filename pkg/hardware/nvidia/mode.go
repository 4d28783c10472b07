package nvidia

import (
	"errors"
	"fmt"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/tranche-dev/tranche/pkg/hardware/mig"
)

// migMode is a GPU's MIG mode and what may be done about it.
type migMode struct {
	// capable is false for a GPU that does not know MIG.
	capable bool
	// on is the mode now, pending the one after the next reset.
	on, pending bool
	// switchable is true when the mode can be changed without a reset, and we
	// are the ones to change it.
	switchable bool
	// needsReset is true when the mode is ours to change, by a reset of the GPU.
	needsReset bool
	// why says why the mode is not switchable.
	why string
}

// migMode reads the mode from the GPU. It is read at each use: what it was
// when the plugin started says nothing.
func (c *gpuHandle) migMode() (migMode, error) {
	type modes struct{ current, pending int }
	now, err := ask(c.task, "DeviceGetMigMode", func() (modes, nvml.Return) {
		current, pending, ret := c.device.GetMigMode()
		return modes{current, pending}, ret
	})
	if unsupported(err) {
		return migMode{}, nil
	}
	if err != nil {
		return migMode{}, err
	}
	m := migMode{
		capable: true,
		on:      now.current == nvml.DEVICE_MIG_ENABLE,
		pending: now.pending == nvml.DEVICE_MIG_ENABLE,
	}
	virtual, err := c.isVirtual()
	if err != nil {
		return m, err
	}
	if virtual {
		m.why = "the GPU is a vGPU, whose mode belongs to the hypervisor"
		return m, nil
	}
	if m.switchable, m.why, err = c.switchesWithoutReset(); err != nil {
		return m, err
	}
	m.needsReset = !m.switchable
	return m, nil
}

// switchesWithoutReset tells whether the GPU can change its MIG mode without a reset,
// and why not. The driver tells (NVML_FI_DEV_IS_RESETLESS_MIG_SUPPORTED, nvml.h); of
// drivers that do not know the field, the compute capability does: from Hopper on.
func (c *gpuHandle) switchesWithoutReset() (bool, string, error) {
	supported, known, err := c.fieldValue(nvml.FI_DEV_IS_RESETLESS_MIG_SUPPORTED)
	switch {
	case err != nil:
		return false, "", err
	case known && supported == 0:
		return false, "the driver says that the GPU needs a reset for it", nil
	case known:
		return true, "", nil
	}
	major, minor, err := c.computeCapability()
	if err != nil || major >= mig.Hopper {
		return err == nil, "", err
	}
	return false, fmt.Sprintf("compute capability %d.%d needs a reset of the GPU for it", major, minor), nil
}

// isVirtual tells whether the GPU is a vGPU in a guest.
func (c *gpuHandle) isVirtual() (bool, error) {
	mode, err := ask(c.task, "DeviceGetVirtualizationMode", c.device.GetVirtualizationMode)
	if unsupported(err) {
		return false, nil
	}
	return mode == nvml.GPU_VIRTUALIZATION_MODE_VGPU, err
}

// setMIG makes the MIG mode what it should be, and believes it only after
// reading it back. On failure the pending mode is put back, so that the next
// reset of the GPU does not bring what nobody asked for any more.
func (c *gpuHandle) setMIG(want bool) error {
	mode, err := c.migMode()
	if err != nil {
		return err
	}
	switch {
	case mode.on == want && mode.pending == want:
		return nil
	case !mode.capable && want:
		return fmt.Errorf("GPU %s does not know MIG", c.pciAddress)
	case !mode.capable:
		return nil
	case mode.on == want && !mode.switchable:
		return nil // a reset will change it; until then it is right
	case !mode.switchable:
		return fmt.Errorf("GPU %s has MIG mode %s and must have it %s: %s", c.pciAddress, onOff(mode.on), onOff(want), mode.why)
	}
	if mode.on != want {
		if err := c.refuseClients("switch MIG mode " + onOff(want)); err != nil {
			return err
		}
	}
	if err := c.switchMIG(want); err != nil {
		if back := c.undoing().putBackMIG(mode.on); back != nil {
			return fmt.Errorf("%w; and the pending mode could not be put back: %w", err, back)
		}
		return err
	}
	return nil
}

// switchMIG switches the mode and checks that it did.
func (c *gpuHandle) switchMIG(want bool) error {
	const call = "DeviceSetMigMode"
	status, err := ask(c.task, call, func() (nvml.Return, nvml.Return) { return c.device.SetMigMode(modeNumber(want)) })
	if err != nil {
		return c.explainClients(err, wholeGPUClients)
	}
	// The call succeeds even when the new mode is only pending: what became of
	// it is in the activation status.
	if status != nvml.SUCCESS {
		err := &CallError{Subject: c.Subject(), Call: call + " (activation)", Return: status}
		return c.explainClients(err, wholeGPUClients)
	}
	mode, err := c.migMode()
	if err != nil {
		return err
	}
	if mode.on != want || mode.pending != want {
		return fmt.Errorf("GPU %s: MIG mode was set %s, but it is %s now and %s after a reset",
			c.pciAddress, onOff(want), onOff(mode.on), onOff(mode.pending))
	}
	return nil
}

// putBackMIG makes the pending mode the current one again.
func (c *gpuHandle) putBackMIG(on bool) error {
	mode, err := c.migMode()
	if err != nil {
		return err
	}
	if mode.on == on && mode.pending == on {
		return nil
	}
	_, err = ask(c.task, "DeviceSetMigMode", func() (nvml.Return, nvml.Return) { return c.device.SetMigMode(modeNumber(on)) })
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

func onOff(on bool) string {
	if on {
		return "on"
	}
	return "off"
}
