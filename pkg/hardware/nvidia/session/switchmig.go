package session

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/go-logr/logr"

	"github.com/tranche-dev/tranche/pkg/gpu"
)

// resetPatience is how long the reset of a GPU may take: usually seconds, longer with
// NVSwitch. Nobody can use NVML meanwhile.
const resetPatience = time.Minute

// errHangs is a program that does not end when it is killed.
var errHangs = errors.New("hangs in the kernel and cannot be ended")

// runPatience is how long a program may take to end after it was killed.
const runPatience = 2 * time.Second

// Modes reads the MIG mode of a GPU. See hardware.Driver.
func (g *GPU) Modes() (gpu.Modes, error) {
	m, err := g.Mode()
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
	Session *Session
	// Run runs a program of the driver to its end, and returns its output.
	Run    func(ctx context.Context, program string, args ...string) ([]byte, error)
	Logger logr.Logger
}

// SetMIG switches a GPU's MIG mode and reads it back. See hardware.Driver.
//
// From Hopper on the mode changes at once. On Ampere NVML resets the GPU for it ("may
// unbind or reset the device", nvml.h), which can fail: because of a client that NVML does
// not list, such as our own session, or in a virtual machine. The mode is then pending, and
// nvidia-smi tries again while our session is closed. No instance is destroyed: a GPU with
// partitions is in use.
func (w *Switcher) SetMIG(ctx context.Context, pciAddress string, on, leavePending bool) error {
	s := migSwitch{pciAddress: pciAddress, on: on, leavePending: leavePending}
	var err error
	s.activation, err = OnGPU(ctx, w.Session, pciAddress, s.ask)
	if err != nil || s.activation == nil {
		return err
	}
	s.reset = w.resetGPU(ctx, pciAddress)
	// The outcome must be read, and a pending mode be removed, even if ctx has ended.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), ClosePatience)
	defer cancel()
	outcome, err := OnGPU(ctx, w.Session, pciAddress, func(g *GPU) (outcome, err error) {
		mode, err := g.Mode()
		if err != nil {
			return nil, err
		}
		return s.finish(g, mode), nil
	})
	if errors.Is(err, nvml.ERROR_RESET_REQUIRED) {
		err = fmt.Errorf("%w: %w", errUnusable, err)
	}
	if err != nil {
		return s.errorf("%w", errors.Join(s.reset, fmt.Errorf("and the GPU cannot be read after that: %w", err)))
	}
	return outcome
}

// migSwitch is one switch of the MIG mode.
type migSwitch struct {
	pciAddress       string
	on, leavePending bool
	// activation is why the mode was only pending, reset the error of nvidia-smi.
	activation, reset error
}

func (s *migSwitch) errorf(format string, args ...any) error {
	return fmt.Errorf("GPU %s: switch MIG %s: "+format, append([]any{s.pciAddress, OnOff(s.on)}, args...)...)
}

// ask requests the mode, unless the GPU is in use. It returns why the mode is only pending,
// nil if the switch is complete.
func (s *migSwitch) ask(g *GPU) (activation, err error) {
	mode, err := g.Mode()
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
		if err := s.refuseInstances(g); err != nil {
			return nil, err
		}
	}
	switch {
	case mode.Switchable:
		return nil, g.setMIG(s.on)
	case mode.On == s.on:
		return nil, g.putBackMIG(s.on) // somebody else requested the other mode
	case mode.NeedsReboot && !s.leavePending:
		// A try would leave the GPU in need of a reset that it cannot have.
		return nil, s.errorf("%w: the GPU is passed through to this virtual machine, which cannot reset it: permit a reboot of the node, after which the mode holds", gpu.ErrNeedsReset)
	}
	if err := g.refuseClients("switch MIG mode " + OnOff(s.on)); err != nil {
		return nil, err
	}
	return s.request(g, mode)
}

// refuseInstances fails with gpu.ErrInUse if the GPU has partitions, and names them.
func (s *migSwitch) refuseInstances(g *GPU) error {
	instances, err := g.instances()
	if err != nil {
		return err
	}
	if len(instances) > 0 {
		return s.errorf("%w: it has the partitions %s, which must be destroyed first", gpu.ErrInUse, g.names(instances))
	}
	return nil
}

// request has NVML switch the mode of a GPU that needs a reset for it.
func (s *migSwitch) request(g *GPU, before Mode) (activation, err error) {
	activation, err = g.requestMIG(s.on)
	if err == nil && activation == nil {
		now, readErr := g.Undoing().Mode()
		switch {
		case readErr != nil:
			return nil, s.errorf("it was set, but cannot be read back: %w", readErr)
		case now.On == s.on && now.Pending == s.on:
			return nil, nil
		}
		activation = s.errorf("NVML said that it did, but it is %s now and %s after a reset", OnOff(now.On), OnOff(now.Pending))
	}
	if err == nil {
		// The caller has given up and will not continue.
		err = g.Context().Err()
	}
	if err == nil {
		return activation, nil
	}
	return nil, s.giveUp(g.Undoing(), before.On, s.errorf("%w", g.Undoing().explainClients(err, wholeGPUClients)))
}

// giveUp removes the pending mode, unless leavePending is set, and adds to the error what
// the mode is now.
func (s *migSwitch) giveUp(g *GPU, on bool, err error) error {
	if s.leavePending {
		return fmt.Errorf("%w; it is %s after the next reset of the GPU or reboot of the node", err, OnOff(s.on))
	}
	back := g.putBackMIG(on)
	if unusable := g.survived(); unusable != nil {
		return fmt.Errorf("%w; %w", err, unusable)
	}
	if back != nil {
		return fmt.Errorf("%w; and the pending mode could not be put back: %w", err, back)
	}
	return fmt.Errorf("%w; it stays %s", err, OnOff(on))
}

// finish returns the outcome after nvidia-smi has tried to reset the GPU.
func (s *migSwitch) finish(g *GPU, mode Mode) error {
	switch {
	case mode.On == s.on && mode.Pending == s.on:
		return nil
	case mode.Pending != s.on:
		return s.errorf("%w", errors.Join(fmt.Errorf("somebody else set it %s meanwhile", OnOff(mode.Pending)), s.reset))
	case s.reset == nil:
		s.reset = errors.New("nvidia-smi said that the GPU was reset, but it was not")
	}
	// activation is not wrapped: callers would wait for a GPU that was in use then.
	return s.giveUp(g, mode.On, s.errorf("%w: %w (before that: %v); end what holds the GPU, like nvidia-persistenced, DCGM and the module nvidia_drm, or reboot the node",
		gpu.ErrNeedsReset, s.reset, s.activation))
}

// resetGPU resets a GPU with nvidia-smi, because NVML has no call for it. Its exit code
// reports whether it worked; what it prints is for people.
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

// runUntil runs a program of the driver. A program that hangs in the kernel cannot be
// killed: it is left behind, because NVML is closed for all GPUs while runUntil waits.
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
