package nvidia

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/test/nvidiatest"
	"github.com/tranche-dev/tranche/test/simulator/nvdriver"
)

func TestSetTimeSlice(t *testing.T) {
	var ran []string
	answer, failure := "", error(nil)
	m := simulated(t, "l4x4", func(c *Config) {
		c.Run = func(ctx context.Context, program string, args ...string) ([]byte, error) {
			_, limited := ctx.Deadline()
			assert.True(t, limited, "nothing may hang")
			ran = append(ran, program+" "+strings.Join(args, " "))
			return []byte(answer), failure
		}
	})
	g := m.GPUs()[1]
	for number, slice := range map[string]gpu.TimeSlice{"0": gpu.DefaultSlice, "1": gpu.ShortSlice, "2": gpu.MediumSlice, "3": gpu.LongSlice} {
		ran = nil
		require.NoError(t, m.SetTimeSlice(t.Context(), g.PCIAddress, slice))
		assert.Equal(t, []string{"nvidia-smi compute-policy -i " + g.UUID + " --set-timeslice " + number}, ran)
	}

	ran = nil
	assert.ErrorContains(t, m.SetTimeSlice(t.Context(), g.PCIAddress, "Endless"), "Endless")
	assert.Error(t, m.SetTimeSlice(t.Context(), "0000:ff:00.0", gpu.LongSlice))
	assert.Empty(t, ran)

	notAvailable := exec.CommandContext(t.Context(), "sh", "-c", "exit 3").Run()
	for text, exit := range map[string]error{"Failed to set timeslice policy : Not Supported\n": nil, "something new\n": notAvailable} {
		answer, failure = text, exit
		assert.ErrorIs(t, m.SetTimeSlice(t.Context(), g.PCIAddress, gpu.LongSlice), gpu.ErrNotSupported, text)
	}
	for code, want := range map[string]error{
		"4": nvml.ERROR_NO_PERMISSION, "6": gpu.ErrLost, "8": nvml.ERROR_INSUFFICIENT_POWER, "9": nvml.ERROR_DRIVER_NOT_LOADED,
		"10": nvml.ERROR_IRQ_ISSUE, "13": gpu.ErrNotSupported, "14": nvml.ERROR_CORRUPTED_INFOROM, "15": gpu.ErrLost, "255": nil,
	} {
		answer, failure = "Not Supported\n", exec.CommandContext(t.Context(), "sh", "-c", "exit "+code).Run()
		err := m.SetTimeSlice(t.Context(), g.PCIAddress, gpu.LongSlice)
		require.Error(t, err)
		assert.Equal(t, errors.Is(want, gpu.ErrNotSupported), errors.Is(err, gpu.ErrNotSupported), "the exit code counts, not the words: %s", code)
		if want != nil {
			assert.ErrorIs(t, err, want, code)
		}
	}
	answer, failure = "No devices were found\n", errors.New("exit status 6")
	err := m.SetTimeSlice(t.Context(), g.PCIAddress, gpu.LongSlice)
	require.ErrorContains(t, err, "No devices were found")
	assert.NotErrorIs(t, err, gpu.ErrNotSupported)
	assert.ErrorContains(t, err, g.PCIAddress)

	ctx, cancel := context.WithCancel(t.Context())
	m = simulated(t, "l4x4", func(c *Config) {
		c.Run = func(ctx context.Context, _ string, _ ...string) ([]byte, error) {
			cancel()
			return nil, context.Cause(ctx)
		}
	})
	assert.ErrorIs(t, m.SetTimeSlice(ctx, g.PCIAddress, gpu.LongSlice), context.Canceled)
}

func TestComputeMode(t *testing.T) {
	m := simulated(t, "l4x4")
	address := m.GPUs()[0].PCIAddress
	is := func(mode string) {
		t.Helper()
		settings, err := m.Settings(t.Context(), address)
		require.NoError(t, err)
		assert.Equal(t, gpu.Settings{ComputeMode: mode}, settings)
	}
	is(gpu.ComputeDefault)
	for _, mode := range []string{gpu.ComputeExclusive, gpu.ComputeExclusive, gpu.ComputeProhibited, gpu.ComputeDefault} {
		require.NoError(t, m.SetComputeMode(t.Context(), address, mode))
		is(mode)
	}
	assert.ErrorContains(t, m.SetComputeMode(t.Context(), address, "exclusive"), gpu.ComputeExclusive, "what there is to choose from")

	require.NoError(t, nvdriver.SetFaults(m.Root, nvdriver.Faults{Calls: []nvdriver.CallFault{
		{Call: "SetComputeMode", GPU: address, Error: nvdriver.Return(nvml.ERROR_IN_USE)},
	}}))
	require.NoError(t, m.SetComputeMode(t.Context(), address, gpu.ComputeDefault), "it is set already")
	assert.ErrorIs(t, m.SetComputeMode(t.Context(), address, gpu.ComputeExclusive), gpu.ErrInUse)
	is(gpu.ComputeDefault)
}

func TestComputeModeUnderMIG(t *testing.T) {
	m := simulated(t, nvidiatest.OfModel(t, "H100-80GB", "  migMode: enabled\n"))
	address := m.GPUs()[0].PCIAddress
	assert.ErrorIs(t, m.SetComputeMode(t.Context(), address, gpu.ComputeExclusive), gpu.ErrNotSupported)
	_, err := m.Settings(t.Context(), address)
	assert.ErrorIs(t, err, gpu.ErrNotSupported, "an empty mode could not be restored")
	_, ret := m.Device(0).GetComputeMode()
	assert.Equal(t, nvml.ERROR_NOT_SUPPORTED, ret, "nvml.h: device must be MIG device handle")

	// The whole GPU turns MIG off, and has a compute mode again.
	m.Made(m.Whole())
	settings, err := m.Settings(t.Context(), address)
	require.NoError(t, err)
	assert.Equal(t, gpu.Settings{ComputeMode: gpu.ComputeDefault}, settings)
}

// A program that does not end holds up neither its caller nor another command. The same command
// waits for it.
func TestProgramThatDoesNotEnd(t *testing.T) {
	root, first := t.TempDir(), make(chan error, 1)
	require.NoError(t, os.MkdirAll(filepath.Join(root, "usr/bin"), 0o755))
	script := "#!/bin/sh\n[ $1 = quick ] && echo done && exit 15\nexec sleep 600\n"
	require.NoError(t, os.WriteFile(filepath.Join(root, "usr/bin/nvidia-smi"), []byte(script), 0o755)) //nolint:gosec // a program
	run := runBelow(root)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		_, err := run(ctx, "nvidia-smi", "slow")
		first <- err
	}()
	out, err := run(t.Context(), "nvidia-smi", "quick")
	assert.Equal(t, "done\n", string(out))
	assert.ErrorIs(t, smiError(err, "0000:01:00.0", "of nvidia-smi"), gpu.ErrLost)
	cancel()
	require.Error(t, <-first)
}
