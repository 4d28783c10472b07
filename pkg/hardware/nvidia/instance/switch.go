package instance

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/go-logr/logr"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware/nvidia/session"
)

// resetPatience is how long the reset of a GPU may take: seconds as a rule, more
// where NVSwitch takes part. Nobody can use NVML meanwhile.
const resetPatience = time.Minute

// errHangs is a program that no signal reaches.
var errHangs = errors.New("hangs in the kernel and cannot be ended")

// runPatience is how long a program may take to end after it was told to.
const runPatience = 2 * time.Second

// Modes reads how a GPU is set now. See partition.Hardware.
func (c *GPU) Modes() (gpu.Modes, error) {
	m, err := c.Mode()
	if err != nil || !m.Capable {
		return gpu.Modes{}, err
	}
	return gpu.Modes{
		MIG: migName(m.On), PendingMIG: migName(m.Pending),
		MIGNeedsReset: m.NeedsReset, MIGFixed: !m.Switchable && !m.NeedsReset,
	}, nil
}

func migName(on bool) gpu.MIGMode {
	if on {
		return gpu.MIGOn
	}
	return gpu.MIGOff
}

// Switcher switches the MIG mode of GPUs.
type Switcher struct {
	Session *session.Session
	// Run runs a program of the driver to its end, and returns its output.
	Run    func(ctx context.Context, program string, args ...string) ([]byte, error)
	Logger logr.Logger
}

// SetMIG switches a GPU's MIG mode and reads it back. See partition.Hardware.
//
// From Hopper on the mode changes at once. On Ampere NVML resets the GPU for it
// ("may unbind or reset the device", nvml.h), unless that cannot be done: for a
// client that no list of processes shows, our own session of NVML among them, or in
// a virtual machine. The mode is then pending, and nvidia-smi, without our session,
// tries once more. No instance is destroyed: a GPU that is cut is in use.
func (w *Switcher) SetMIG(ctx context.Context, pciAddress string, on, leavePending bool) error {
	s := migSwitch{pciAddress: pciAddress, on: on, leavePending: leavePending}
	var err error
	s.activation, err = onGPU(ctx, w.Session, pciAddress, s.ask)
	if err != nil || s.activation == nil {
		return err
	}
	s.reset = w.resetGPU(ctx, pciAddress)
	// Whatever became of it must be known, and put back, although time is up.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), session.ClosePatience)
	defer cancel()
	outcome, err := onGPU(ctx, w.Session, pciAddress, func(c *GPU) (outcome, err error) {
		mode, err := c.Mode()
		if err != nil {
			return nil, err
		}
		return s.finish(c, mode), nil
	})
	if err != nil {
		return s.errorf("%w", errors.Join(s.reset, fmt.Errorf("and the GPU cannot be read after that: %w", err)))
	}
	return outcome
}

// migSwitch is one switch of the MIG mode.
type migSwitch struct {
	pciAddress       string
	on, leavePending bool
	// activation is why the mode was only pending, reset what came of nvidia-smi.
	activation, reset error
}

func (s *migSwitch) errorf(format string, args ...any) error {
	return fmt.Errorf("GPU %s: switch MIG %s: "+format, append([]any{s.pciAddress, OnOff(s.on)}, args...)...)
}

// ask asks for the mode, unless somebody uses the GPU. It returns why the mode is
// only pending, nil when there is nothing left to do.
func (s *migSwitch) ask(c *GPU) (activation, err error) {
	mode, err := c.Mode()
	switch {
	case err != nil:
		return nil, err
	case !mode.Capable && s.on:
		return nil, s.errorf("%w: it does not know MIG", gpu.ErrNotSupported)
	case !mode.Capable, mode.On == s.on && mode.Pending == s.on:
		return nil, nil
	case !mode.Switchable && !mode.NeedsReset && mode.On == s.on:
		return nil, nil
	case !mode.Switchable && !mode.NeedsReset:
		return nil, s.errorf("%w: %s", gpu.ErrNotSupported, mode.Why)
	}
	if mode.On && !s.on {
		if err := s.refuseInstances(c); err != nil {
			return nil, err
		}
	}
	switch {
	case mode.Switchable:
		return nil, c.setMIG(s.on)
	case mode.On == s.on:
		return nil, c.putBackMIG(s.on) // what somebody else wanted after a reset
	}
	if err := c.refuseClients("switch MIG mode " + OnOff(s.on)); err != nil {
		return nil, err
	}
	return s.request(c, mode)
}

// refuseInstances fails with gpu.ErrInUse when the GPU is cut. NVML would refuse
// too, and not say by what.
func (s *migSwitch) refuseInstances(c *GPU) error {
	instances, err := c.instances()
	if err != nil {
		return err
	}
	if len(instances) > 0 {
		return s.errorf("%w: it is cut into %s, which must be destroyed first", gpu.ErrInUse, c.names(instances))
	}
	return nil
}

// request has NVML switch the mode of a GPU that is reset for it.
func (s *migSwitch) request(c *GPU, before Mode) (activation, err error) {
	const call = "DeviceSetMigMode"
	status, err := session.Ask(c.Task, call, func() (nvml.Return, nvml.Return) { return c.Device.SetMigMode(modeNumber(s.on)) })
	if err == nil && status != nvml.SUCCESS {
		activation = &session.CallError{Subject: c.Subject(), Call: call + " (activation)", Return: status}
	}
	if err == nil && activation == nil {
		now, readErr := c.undoing().Mode()
		switch {
		case readErr != nil:
			return nil, s.errorf("it was set, but cannot be read back: %w", readErr)
		case now.On == s.on && now.Pending == s.on:
			return nil, nil
		}
		activation = s.errorf("NVML said that it did, but it is %s now and %s after a reset", OnOff(now.On), OnOff(now.Pending))
	}
	if err == nil {
		// Nobody is there any more to go on with it.
		err = c.Context().Err()
	}
	if err == nil {
		return activation, nil
	}
	return nil, s.giveUp(c.undoing(), before.On, s.errorf("%w", c.undoing().explainClients(err, wholeGPUClients)))
}

// giveUp puts the pending mode back, unless it is to stay, and returns the error
// with what came of that.
func (s *migSwitch) giveUp(c *GPU, on bool, err error) error {
	if s.leavePending {
		return fmt.Errorf("%w; it is %s after the next reset of the GPU or reboot of the node", err, OnOff(s.on))
	}
	if back := c.putBackMIG(on); back != nil {
		return fmt.Errorf("%w; and the pending mode could not be put back: %w", err, back)
	}
	return fmt.Errorf("%w; it stays %s", err, OnOff(on))
}

// finish says what became of the mode after nvidia-smi has tried to reset the GPU.
func (s *migSwitch) finish(c *GPU, mode Mode) error {
	switch {
	case mode.On == s.on && mode.Pending == s.on:
		return nil
	case mode.Pending != s.on:
		return s.errorf("%w", errors.Join(fmt.Errorf("somebody else set it %s meanwhile", OnOff(mode.Pending)), s.reset))
	case s.reset == nil:
		s.reset = errors.New("nvidia-smi said that the GPU was reset, but it was not")
	}
	// The first try is told as text only: that the GPU was in use does not mean that
	// it is worth waiting.
	return s.giveUp(c, mode.On, s.errorf("%w: %w (before that: %v); end what holds the GPU, like nvidia-persistenced, DCGM and the module nvidia_drm, or reboot the node",
		gpu.ErrNeedsReset, s.reset, s.activation))
}

// resetGPU resets a GPU with nvidia-smi: NVML has no call for it.
func (w *Switcher) resetGPU(ctx context.Context, pciAddress string) error {
	return w.Session.WithoutNVML(ctx, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, resetPatience)
		defer cancel()
		out, err := w.runUntil(ctx, "nvidia-smi", "--gpu-reset", "-i", pciAddress)
		said := strings.Join(strings.Fields(string(out)), " ")
		switch {
		case err == nil:
			w.Logger.Info("The GPU was reset", "gpu", pciAddress, "nvidia-smi", said)
			return nil
		case errors.Is(err, errHangs):
			return fmt.Errorf("nvidia-smi --gpu-reset %w; look in dmesg, mostly a reboot of the node is all that helps: %w", errHangs, context.Cause(ctx))
		case ctx.Err() != nil:
			return fmt.Errorf("nvidia-smi --gpu-reset does not end: %w", context.Cause(ctx))
		}
		return fmt.Errorf("nvidia-smi --gpu-reset: %w: %s", err, said)
	})
}

// runUntil runs a program of the driver, and leaves it behind when it does not end with
// ctx: one that hangs in the kernel is reached by no signal, and NVML must not be
// closed to all GPUs until it ends.
func (w *Switcher) runUntil(ctx context.Context, program string, args ...string) ([]byte, error) {
	type answer struct {
		out []byte
		err error
	}
	ended := make(chan answer, 1)
	go func() {
		out, err := w.Run(ctx, program, args...)
		ended <- answer{out, err}
	}()
	select {
	case a := <-ended:
		return a.out, a.err
	case <-ctx.Done():
	}
	select {
	case a := <-ended:
		return a.out, a.err
	case <-time.After(runPatience):
		return nil, errHangs
	}
}
