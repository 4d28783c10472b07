package session_test

import (
	"encoding/binary"
	"errors"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/test/nvidiatest"
	"github.com/tranche-dev/tranche/test/simulator/nvdriver"
)

func TestWholeGPUSwitchesTheModeOff(t *testing.T) {
	m := simulated(t, "h100x8")
	m.MIGOn()
	made := m.Made(m.Whole())
	assert.Equal(t, m.GPUs()[0].UUID, made.UUID)
	assert.True(t, made.Is(m.Whole()))
	current, pending := m.MIGModes()
	assert.Equal(t, nvml.DEVICE_MIG_DISABLE, current)
	assert.Equal(t, nvml.DEVICE_MIG_DISABLE, pending)
}

func TestModeIsNotSwitchedUnderAClient(t *testing.T) {
	m := simulated(t, "h100x8", trapping(func(d nvml.Device) nvml.Device { return drawing{d} }))
	p := m.Placement("1g.10gb", 6)
	require.NoError(t, nvdriver.AddProcess(m.Root, nvdriver.Process{GPU: p.GPU, PID: 11}))
	require.NoError(t, nvdriver.AddProcess(m.Root, nvdriver.Process{GPU: p.GPU, PID: 7}))
	_, err := m.Create(t.Context(), p)
	require.ErrorIs(t, err, gpu.ErrInUse)
	assert.ErrorContains(t, err, "cannot switch MIG mode on: in use by processes 7, 11")
	current, pending := m.MIGModes()
	assert.Zero(t, current)
	assert.Zero(t, pending, "nothing waits for the next reset")
}

// A client that does not show in the list of processes, like a monitor that
// holds the device open, is only seen in the activation status.
func TestModeThatStaysPendingIsPutBack(t *testing.T) {
	for answer, test := range map[nvml.Return]struct {
		inUse bool
		want  string
	}{
		nvml.ERROR_IN_USE:         {true, "DeviceSetMigMode (activation)"},
		nvml.ERROR_RESET_REQUIRED: {false, "nvidia-smi --gpu-reset"},
	} {
		state := &pendingState{answer: answer}
		m := simulated(t, "h100x8", trapping(func(d nvml.Device) nvml.Device { return pendingOnly{d, state} }))
		_, err := m.Create(t.Context(), m.Placement("1g.10gb", 6))
		require.ErrorIs(t, err, answer)
		assert.Equal(t, test.inUse, errors.Is(err, gpu.ErrInUse), "%v", err)
		assert.ErrorContains(t, err, test.want)
		assert.Equal(t, nvml.DEVICE_MIG_DISABLE, state.mode, "the pending mode is put back")
	}
}

func TestModeThatDoesNotChangeIsNotBelieved(t *testing.T) {
	m := simulated(t, "h100x8", trapping(func(d nvml.Device) nvml.Device { return stubborn{d} }))
	_, err := m.Create(t.Context(), m.Placement("1g.10gb", 6))
	assert.ErrorContains(t, err, "MIG mode was set on, but it is off now and off after a reset")
}

func TestAmpereIsNeverSwitched(t *testing.T) {
	on := withLibrary(t, "a100-40x8", "580")
	_, err := on.Create(t.Context(), gpu.Placement{GPU: "0000:07:00.0", Type: gpu.TypeGPU})
	assert.ErrorContains(t, err, "has MIG mode on and must have it off: the driver says that the GPU needs a reset")

	off := simulated(t, nvidiatest.OfModel(t, "A100-40GB", "  migMode: disabled\n"))
	_, err = off.Create(t.Context(), gpu.Placement{GPU: "0000:1b:00.0", Type: gpu.TypeMIG, Profile: "1g.5gb", Start: 6, Size: 1})
	assert.ErrorContains(t, err, "has MIG mode off and must have it on")
	off.Made(off.Whole())
	current, pending := off.MIGModes()
	assert.Zero(t, current)
	assert.Zero(t, pending)
}

// resetless answers whether MIG mode changes without a reset; nil: the driver does not
// know the field.
type resetless struct {
	nvml.Device
	answer *uint32
}

func (d resetless) GetFieldValues(values []nvml.FieldValue) nvml.Return {
	ret := d.Device.GetFieldValues(values)
	for i := range values {
		if values[i].FieldId != nvml.FI_DEV_IS_RESETLESS_MIG_SUPPORTED {
			continue
		}
		values[i].NvmlReturn = uint32(nvml.ERROR_NOT_SUPPORTED)
		if d.answer != nil {
			values[i].NvmlReturn, values[i].ValueType = uint32(nvml.SUCCESS), uint32(nvml.VALUE_TYPE_UNSIGNED_INT)
			binary.NativeEndian.PutUint32(values[i].Value[:], *d.answer)
		}
	}
	return ret
}

// The driver says whether MIG mode changes without a reset. The compute capability
// counts only where it does not.
func TestSwitchingWithoutResetIsTheDriversWord(t *testing.T) {
	for name, tt := range map[string]struct {
		model      string
		answer     *uint32
		needsReset bool
	}{
		"Hopper, yes":     {"H100-80GB", new(uint32(1)), false},
		"Hopper, no":      {"H100-80GB", new(uint32(0)), true},
		"Hopper, unknown": {"H100-80GB", nil, false},
		"Ampere, yes":     {"A100-80GB", new(uint32(1)), false},
		"Ampere, no":      {"A100-80GB", new(uint32(0)), true},
		"Ampere, unknown": {"A100-80GB", nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			m := withLibrary(t, nvidiatest.OfModel(t, tt.model, ""), "580", trapping(func(d nvml.Device) nvml.Device { return resetless{d, tt.answer} }))
			modes, err := m.Modes(t.Context(), firstGPU)
			require.NoError(t, err)
			assert.Equal(t, tt.needsReset, modes.MIGNeedsReset)
			assert.False(t, modes.MIGFixed)
		})
	}
}
