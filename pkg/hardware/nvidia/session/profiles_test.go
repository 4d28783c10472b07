package session

import (
	"encoding/binary"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware"
	"github.com/tranche-dev/tranche/pkg/hardware/mig"
)

// Each position of a profile is offered once: names of devices must be unique, and what has no size
// would take nothing of the GPU.
func TestSpansOf(t *testing.T) {
	assert.Equal(t, []mig.Span{{Start: 0, Size: 2}, {Start: 0, Size: 4}, {Start: 4, Size: 2}}, spansOf([]nvml.GpuInstancePlacement{
		{Start: 0, Size: 2}, {Start: 3, Size: 0}, {Start: 0, Size: 2}, {Start: 0, Size: 4}, {Start: 0, Size: 0}, {Start: 4, Size: 2}, {Start: 0, Size: 4},
	}))
	assert.Empty(t, spansOf(nil))
}

// What a library says of the numbers of profiles: which end the list, and which are gaps or errors.
func TestEnumerate(t *testing.T) {
	for name, tt := range map[string]struct {
		answers map[int]nvml.Return // of others: SUCCESS
		want    []int
		err     nvml.Return
	}{
		"an older library":             {map[int]nvml.Return{2: nvml.ERROR_INVALID_ARGUMENT, 3: nvml.ERROR_INVALID_ARGUMENT, 4: nvml.ERROR_INVALID_ARGUMENT}, []int{0, 1}, nvml.SUCCESS},
		"a newer library":              {map[int]nvml.Return{6: nvml.ERROR_INVALID_ARGUMENT}, []int{0, 1, 2, 3, 4, 5}, nvml.SUCCESS},
		"a gap":                        {map[int]nvml.Return{1: nvml.ERROR_INVALID_ARGUMENT, 4: nvml.ERROR_INVALID_ARGUMENT}, []int{0, 2, 3}, nvml.SUCCESS},
		"not of this GPU":              {map[int]nvml.Return{0: nvml.ERROR_NOT_SUPPORTED, 4: nvml.ERROR_INVALID_ARGUMENT}, []int{1, 2, 3}, nvml.SUCCESS},
		"the code is about the device": {map[int]nvml.Return{0: nvml.ERROR_INVALID_ARGUMENT}, nil, nvml.ERROR_INVALID_ARGUMENT},
		"another error":                {map[int]nvml.Return{3: nvml.ERROR_UNKNOWN}, nil, nvml.ERROR_UNKNOWN},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := enumerate(4, func(number int) (int, error) {
				if code := tt.answers[number]; code != nvml.SUCCESS {
					return 0, code
				}
				return number, nil
			})
			if tt.err != nvml.SUCCESS {
				require.ErrorIs(t, err, tt.err)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, tt.want, got)
		})
	}
	endless, err := enumerate(4, func(number int) (int, error) { return number, nil })
	require.NoError(t, err)
	assert.Len(t, endless, mostProfiles)
}

// telling is a device that tells the name of a profile in each version of the structure.
type telling struct {
	nvml.Device
	v2, v3 nvml.Return
}

func write(raw []int8, name string) {
	for i, c := range []byte(name) {
		raw[i] = int8(c)
	}
}

func (d telling) GetGpuInstanceProfileInfoV2(int) (told nvml.GpuInstanceProfileInfo_v2, _ nvml.Return) {
	write(told.Name[:], "MIG 2")
	return told, d.v2
}

func (d telling) GetGpuInstanceProfileInfoV3(int) (told nvml.GpuInstanceProfileInfo_v3, _ nvml.Return) {
	write(told.Name[:], "MIG 3")
	return told, d.v3
}

// The newest structure that the library knows has the name.
func TestNameTold(t *testing.T) {
	const old = nvml.ERROR_ARGUMENT_VERSION_MISMATCH
	for name, tt := range map[string]struct {
		device telling
		want   string
		err    error
	}{
		"both":          {telling{nil, nvml.ERROR_UNKNOWN, nvml.SUCCESS}, "3", nil},
		"the older":     {telling{nil, nvml.SUCCESS, old}, "2", nil},
		"neither":       {telling{nil, old, old}, "", nil},
		"no answer":     {telling{nil, nvml.SUCCESS, nvml.ERROR_GPU_IS_LOST}, "", nvml.ERROR_GPU_IS_LOST},
		"none any more": {telling{nil, nvml.ERROR_GPU_IS_LOST, old}, "", nvml.ERROR_GPU_IS_LOST},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := hardware.Through(t.Context(), hardware.NewGate("GPU", ""), func(task *hardware.Task) (string, error) {
				return (&GPU{Task: &Task{Task: task}, Device: tt.device}).nameTold(1)
			})
			require.ErrorIs(t, err, tt.err)
			assert.Equal(t, tt.want, got)
		})
	}
}

// fields is a device with one field.
type fields struct {
	nvml.Device
	ret, field nvml.Return
	kind       nvml.ValueType
}

func (d fields) GetFieldValues(values []nvml.FieldValue) nvml.Return {
	values[0].NvmlReturn, values[0].ValueType = uint32(d.field), uint32(d.kind)
	binary.NativeEndian.PutUint64(values[0].Value[:], 1<<40+7)
	return d.ret
}

// A field has the size of its type. Drivers have several codes for one that they do not know, and one for
// a lost GPU.
func TestFieldValue(t *testing.T) {
	for name, tt := range map[string]struct {
		device fields
		value  uint64
		known  bool
		err    error
	}{
		"8 bytes":         {fields{kind: nvml.VALUE_TYPE_UNSIGNED_LONG_LONG}, 1<<40 + 7, true, nil},
		"long":            {fields{kind: nvml.VALUE_TYPE_UNSIGNED_LONG}, 1<<40 + 7, true, nil},
		"4 bytes":         {fields{kind: nvml.VALUE_TYPE_UNSIGNED_INT}, 7, true, nil},
		"no fields":       {fields{ret: nvml.ERROR_FUNCTION_NOT_FOUND}, 0, false, nil},
		"no such field":   {fields{ret: nvml.ERROR_INVALID_ARGUMENT}, 0, false, nil},
		"not of this GPU": {fields{field: nvml.ERROR_NOT_SUPPORTED}, 0, false, nil},
		"lost":            {fields{field: nvml.ERROR_GPU_IS_LOST}, 0, false, gpu.ErrLost},
		"failed":          {fields{ret: nvml.ERROR_UNKNOWN}, 0, false, nvml.ERROR_UNKNOWN},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := hardware.Through(t.Context(), hardware.NewGate("GPU", ""), func(task *hardware.Task) (struct{}, error) {
				value, known, err := (&GPU{Task: &Task{Task: task}, Device: tt.device}).FieldValue(1)
				assert.Equal(t, tt.value, value)
				assert.Equal(t, tt.known, known)
				return struct{}{}, err
			})
			require.ErrorIs(t, err, tt.err)
		})
	}
}
