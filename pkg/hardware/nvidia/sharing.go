package nvidia

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware"
	"github.com/tranche-dev/tranche/pkg/hardware/nvidia/session"
)

// smiPatience is how long nvidia-smi may take: it reads all GPUs first.
const smiPatience = 30 * time.Second

// smiInterrupts is the one exit code of nvidia-smi that is not NVML's number: "NVIDIA Kernel
// detected an interrupt issue with a GPU" (nvidia-smi(1), RETURN VALUE).
const smiInterrupts = 10

// smiError returns what the exit code of nvidia-smi says, or err if it says nothing. The other
// codes below 255 are NVML's. 6 says that there is no such GPU, though NVML has just reported its UUID:
// it fell off the bus.
func smiError(err error, pciAddress, what string) error {
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() <= 0 || exit.ExitCode() >= 255 {
		return err
	}
	answer := &session.CallError{Subject: "GPU " + pciAddress, Call: what, Return: nvml.Return(exit.ExitCode())}
	if answer.Return == smiInterrupts {
		answer.Return = nvml.ERROR_IRQ_ISSUE
	}
	switch {
	case session.Unsupported(answer):
		return fmt.Errorf("%w: %w", gpu.ErrNotSupported, answer)
	case answer.Return == nvml.ERROR_NOT_FOUND:
		return fmt.Errorf("%w: %w", gpu.ErrLost, answer)
	}
	return answer
}

// sliceNumbers are the time slices by nvidia-smi's numbers (nvidia-smi compute-policy
// --help). NVML cannot set them.
var sliceNumbers = []gpu.TimeSlice{gpu.DefaultSlice, gpu.ShortSlice, gpu.MediumSlice, gpu.LongSlice}

// SetTimeSlice implements hardware.Driver. GPUs with a fixed time slice (before Pascal's
// largest) fail with gpu.ErrNotSupported. The setting lasts until the driver is reloaded.
func (d *Driver) SetTimeSlice(ctx context.Context, pciAddress string, slice gpu.TimeSlice) error {
	number := slices.Index(sliceNumbers, slice)
	if number < 0 {
		return fmt.Errorf("GPU %s: unknown time slice %q: use one of %v", pciAddress, slice, sliceNumbers)
	}
	uuid, err := onGPU(ctx, d, pciAddress, func(h *handle) (string, error) { return h.UUID() })
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, smiPatience)
	defer cancel()
	out, err := d.cfg.Run(ctx, "nvidia-smi", "compute-policy", "-i", uuid, "--set-timeslice", strconv.Itoa(number))
	said := strings.Join(strings.Fields(string(out)), " ")
	switch {
	// Some versions call it a warning and exit with 0. Then only their words tell: neither
	// NVML nor another option of nvidia-smi reads the time slice back.
	case err == nil && strings.Contains(strings.ToLower(said), "not supported"):
		err = gpu.ErrNotSupported
	case ctx.Err() != nil:
		return fmt.Errorf("GPU %s: set its time slice to %s: nvidia-smi does not end: %w", pciAddress, slice, context.Cause(ctx))
	}
	if err != nil {
		return fmt.Errorf("GPU %s: set its time slice to %s: nvidia-smi: %w: %s", pciAddress, slice, smiError(err, pciAddress, "of nvidia-smi compute-policy"), said)
	}
	return nil
}

// runBelow runs programs of a driver root as children of this process. A program that hangs in the
// driver cannot be killed: the caller gives up on it when ctx ends, and the same command is refused
// until it has ended.
func runBelow(root string) func(context.Context, string, ...string) ([]byte, error) {
	var commands sync.Map // the gate of each command
	return func(ctx context.Context, program string, args ...string) ([]byte, error) {
		key := strings.Join(append([]string{program}, args...), " ")
		command, _ := commands.LoadOrStore(key, hardware.NewGate(program, ""))
		return hardware.Through(ctx, command.(*hardware.Gate), func(t *hardware.Task) ([]byte, error) { //nolint:forcetypeassert // nothing else is stored
			t.Note(key)
			cmd := exec.CommandContext(ctx, filepath.Join(root, "usr/bin", program), args...)
			cmd.WaitDelay = time.Second
			return cmd.CombinedOutput()
		})
	}
}

// computeModes are NVML's compute modes by their names in gpu.Settings.
var computeModes = map[string]nvml.ComputeMode{
	gpu.ComputeDefault:    nvml.COMPUTEMODE_DEFAULT,
	gpu.ComputeExclusive:  nvml.COMPUTEMODE_EXCLUSIVE_PROCESS,
	gpu.ComputeProhibited: nvml.COMPUTEMODE_PROHIBITED,
}

// Settings implements hardware.Driver. A GPU in MIG mode fails with gpu.ErrNotSupported:
// only its MIG devices have compute modes.
func (d *Driver) Settings(ctx context.Context, pciAddress string) (gpu.Settings, error) {
	return onGPU(ctx, d, pciAddress, func(h *handle) (gpu.Settings, error) {
		if err := h.refuseMIG("read its compute mode"); err != nil {
			return gpu.Settings{}, err
		}
		mode, err := session.Ask(h.Task, "DeviceGetComputeMode", h.Device.GetComputeMode)
		if err != nil {
			return gpu.Settings{}, err
		}
		for name, known := range computeModes {
			if known == mode {
				return gpu.Settings{ComputeMode: name}, nil
			}
		}
		return gpu.Settings{}, fmt.Errorf("GPU %s: its compute mode is %s, which Tranche does not set back: nvidia-smi -i %s -c DEFAULT", pciAddress, computeModeName(mode), pciAddress)
	})
}

// SetComputeMode implements hardware.Driver, and reads the mode back. A GPU in MIG mode
// fails with gpu.ErrNotSupported. The setting lasts until the driver is reloaded.
func (d *Driver) SetComputeMode(ctx context.Context, pciAddress, mode string) error {
	want, ok := computeModes[mode]
	if !ok {
		return fmt.Errorf("GPU %s: unknown compute mode %q: use %s, %s or %s", pciAddress, mode, gpu.ComputeDefault, gpu.ComputeExclusive, gpu.ComputeProhibited)
	}
	_, err := onGPU(ctx, d, pciAddress, func(h *handle) (struct{}, error) { return struct{}{}, h.setComputeMode(mode, want) })
	return err
}

// refuseMIG fails with gpu.ErrNotSupported while MIG is enabled: "If MIG is enabled on
// a GPU, device must be MIG device handle" (nvml.h, on compute modes).
func (h *handle) refuseMIG(what string) error {
	mode, err := h.Mode()
	if err != nil {
		return err
	}
	if mode.On {
		return fmt.Errorf("GPU %s: cannot %s while MIG is enabled: %w", h.PCIAddress, what, gpu.ErrNotSupported)
	}
	return nil
}

func (h *handle) setComputeMode(name string, want nvml.ComputeMode) error {
	if err := h.refuseMIG("set its compute mode to " + name); err != nil {
		return err
	}
	before, err := session.Ask(h.Task, "DeviceGetComputeMode", h.Device.GetComputeMode)
	if err == nil && before == want {
		return nil
	}
	err = session.Tell(h.Task, "DeviceSetComputeMode", func() nvml.Return { return h.Device.SetComputeMode(want) })
	if session.Unsupported(err) {
		return errors.Join(fmt.Errorf("GPU %s: set its compute mode to %s: %w", h.PCIAddress, name, gpu.ErrNotSupported), err)
	}
	if err != nil {
		return err
	}
	now, err := session.Ask(h.Task, "DeviceGetComputeMode", h.Device.GetComputeMode)
	if err != nil {
		return err
	}
	if now != want {
		return fmt.Errorf("GPU %s: its compute mode was set to %s, and it is %s", h.PCIAddress, name, computeModeName(now))
	}
	return nil
}

func computeModeName(mode nvml.ComputeMode) string {
	switch mode {
	case nvml.COMPUTEMODE_DEFAULT:
		return "default"
	case nvml.COMPUTEMODE_EXCLUSIVE_THREAD:
		return "exclusive thread"
	case nvml.COMPUTEMODE_PROHIBITED:
		return "prohibited"
	case nvml.COMPUTEMODE_EXCLUSIVE_PROCESS:
		return "exclusive process"
	}
	return fmt.Sprint(int(mode))
}
