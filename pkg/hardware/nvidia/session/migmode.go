package session

import (
	"errors"
	"fmt"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware/mig"
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
	// NeedsReboot: only a reboot resets the GPU, because the machine is virtual and has the
	// GPU passed through.
	NeedsReboot bool
	// Why is the reason why the mode is not switchable.
	Why string
}

// Mode reads the mode. It may have changed since the last time.
func (g *GPU) Mode() (Mode, error) {
	type modes struct{ current, pending int }
	now, err := Ask(g.Task, "DeviceGetMigMode", func() (modes, nvml.Return) {
		current, pending, ret := g.Device.GetMigMode()
		return modes{current, pending}, ret
	})
	if Unsupported(err) {
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
	virtualization, err := g.virtualization()
	if err != nil {
		return m, err
	}
	if virtualization == nvml.GPU_VIRTUALIZATION_MODE_VGPU {
		m.Why = "the GPU is a vGPU, whose mode belongs to the hypervisor"
		return m, nil
	}
	if m.Switchable, m.Why, err = g.switchesWithoutReset(); err != nil {
		return m, err
	}
	m.NeedsReset = !m.Switchable
	m.NeedsReboot = m.NeedsReset && virtualization == nvml.GPU_VIRTUALIZATION_MODE_PASSTHROUGH
	return m, nil
}

// switchesWithoutReset reports whether the GPU can change its MIG mode without a reset, and
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

// virtualization returns how a virtual machine has the GPU, NONE on a real one.
func (g *GPU) virtualization() (nvml.GpuVirtualizationMode, error) {
	mode, err := Ask(g.Task, "DeviceGetVirtualizationMode", g.Device.GetVirtualizationMode)
	if Unsupported(err) {
		return nvml.GPU_VIRTUALIZATION_MODE_NONE, nil
	}
	return mode, err
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
		if back := g.Undoing().putBackMIG(mode.On); back != nil {
			return fmt.Errorf("%w; and the pending mode could not be put back: %w", err, back)
		}
		return err
	}
	return nil
}

// switchMIG switches the mode and checks that it did.
func (g *GPU) switchMIG(want bool) error {
	activation, err := g.requestMIG(want)
	if err = errors.Join(err, activation); err != nil {
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

// requestMIG asks NVML for a mode. The call succeeds even if the new mode is only pending:
// activation is why.
func (g *GPU) requestMIG(on bool) (activation, err error) {
	const call = "DeviceSetMigMode"
	status, err := Ask(g.Task, call, func() (nvml.Return, nvml.Return) { return g.Device.SetMigMode(modeNumber(on)) })
	switch {
	case Unsupported(err):
		return nil, fmt.Errorf("%w: this driver does not switch MIG mode on GPU %s, although it tells the mode: use a driver for data centers, and look whether a hypervisor keeps the mode: %w",
			gpu.ErrNotSupported, g.PCIAddress, err)
	case err != nil:
		return nil, err
	case status != nvml.SUCCESS:
		return &CallError{Subject: g.Subject(), Call: call + " (activation)", Return: status}, nil
	}
	return nil, nil
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
	_, err = g.requestMIG(on)
	if errors.Is(err, nvml.ERROR_IN_USE) {
		return nil // a GPU in use did not accept the other mode either
	}
	return err
}

// errUnusable is a GPU that a failed switch of the MIG mode left in need of a reset that it
// cannot have (kubernetes-sigs/dra-driver-nvidia-gpu#883).
var errUnusable = errors.New("the GPU is unusable until the node is rebooted")

// survived asks the GPU after a failed switch. The error wraps errUnusable if it must be reset.
func (g *GPU) survived() error {
	if _, err := g.TotalMemory(); errors.Is(err, nvml.ERROR_RESET_REQUIRED) {
		return fmt.Errorf("%w: %w", errUnusable, err)
	}
	return nil
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
