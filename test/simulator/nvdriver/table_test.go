package nvdriver

import (
	"regexp"
	"testing"

	nvlib "github.com/NVIDIA/go-nvlib/pkg/nvlib/device"
	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/pkg/publish/models"
)

func TestTableSuitsNVML(t *testing.T) {
	for _, key := range models.NVIDIAModels() {
		t.Run(key, func(t *testing.T) {
			m, ok := models.NVIDIAModelByKey(key)
			require.True(t, ok)
			assert.NotEqual(t, nvml.DeviceArchitecture(nvml.DEVICE_ARCH_UNKNOWN), architecture(m))
			for i := range m.Profiles {
				checkProfile(t, m, &m.Profiles[i])
			}
		})
	}
}

// enumSlices says how many compute slices and which suffix go-nvml's profile
// numbers mean.
var enumSlices = map[int]struct {
	slices int
	suffix string
}{
	nvml.GPU_INSTANCE_PROFILE_1_SLICE:        {1, ""},
	nvml.GPU_INSTANCE_PROFILE_2_SLICE:        {2, ""},
	nvml.GPU_INSTANCE_PROFILE_3_SLICE:        {3, ""},
	nvml.GPU_INSTANCE_PROFILE_4_SLICE:        {4, ""},
	nvml.GPU_INSTANCE_PROFILE_7_SLICE:        {7, ""},
	nvml.GPU_INSTANCE_PROFILE_1_SLICE_REV1:   {1, "+me"},
	nvml.GPU_INSTANCE_PROFILE_2_SLICE_REV1:   {2, "+me"},
	nvml.GPU_INSTANCE_PROFILE_1_SLICE_REV2:   {1, ""},
	nvml.GPU_INSTANCE_PROFILE_1_SLICE_GFX:    {1, "+gfx"},
	nvml.GPU_INSTANCE_PROFILE_2_SLICE_GFX:    {2, "+gfx"},
	nvml.GPU_INSTANCE_PROFILE_4_SLICE_GFX:    {4, "+gfx"},
	nvml.GPU_INSTANCE_PROFILE_1_SLICE_NO_ME:  {1, "-me"},
	nvml.GPU_INSTANCE_PROFILE_2_SLICE_NO_ME:  {2, "-me"},
	nvml.GPU_INSTANCE_PROFILE_1_SLICE_ALL_ME: {1, "+me.all"},
	nvml.GPU_INSTANCE_PROFILE_2_SLICE_ALL_ME: {2, "+me.all"},
}

func checkProfile(t *testing.T, m *models.NVIDIAModel, p *models.Profile) {
	t.Helper()
	want, ok := enumSlices[p.Enum]
	require.True(t, ok, "%s: enum %d", p.Name, p.Enum)
	assert.Equal(t, want.slices, p.ComputeSlices, p.Name)
	assert.Regexp(t, `^[0-9]g\.[0-9]+gb`+regexp.QuoteMeta(want.suffix)+`$`, p.Name)
	for _, s := range p.Starts {
		assert.Less(t, instanceID(m, p, s), 15, p.Name)
	}
	assert.Equal(t, p.MaxInstances, remaining(m, nil, p), "%s: as many as placements and engines allow", p.Name)
	assert.Len(t, computeStarts(p, p.ComputeSlices), 1, "%s: one compute instance takes it all", p.Name)
}

// TestH200MatchesTheRecord compares with what NVML answered on a real H200:
// id, compute slices, instances, SMs, engines and memory, placements.
func TestH200MatchesTheRecord(t *testing.T) {
	d := handleOf(t, machine(t, "h200x8"), 0)
	type record struct {
		enum int
		info nvml.GpuInstanceProfileInfo
		size uint32
		at   []uint32
	}
	records := []record{
		{0, nvml.GpuInstanceProfileInfo{Id: 19, SliceCount: 1, InstanceCount: 7, MultiprocessorCount: 16, CopyEngineCount: 1, DecoderCount: 1, JpegCount: 1, MemorySizeMB: 16384}, 1, []uint32{0, 1, 2, 3, 4, 5, 6}},
		{1, nvml.GpuInstanceProfileInfo{Id: 14, SliceCount: 2, InstanceCount: 3, MultiprocessorCount: 32, CopyEngineCount: 2, DecoderCount: 2, JpegCount: 2, MemorySizeMB: 33280}, 2, []uint32{0, 2, 4}},
		{2, nvml.GpuInstanceProfileInfo{Id: 9, SliceCount: 3, InstanceCount: 2, MultiprocessorCount: 60, CopyEngineCount: 3, DecoderCount: 3, JpegCount: 3, MemorySizeMB: 71424}, 4, []uint32{0, 4}},
		{3, nvml.GpuInstanceProfileInfo{Id: 5, SliceCount: 4, InstanceCount: 1, MultiprocessorCount: 64, CopyEngineCount: 4, DecoderCount: 4, JpegCount: 4, MemorySizeMB: 71424}, 4, []uint32{0}},
		{4, nvml.GpuInstanceProfileInfo{Id: 0, SliceCount: 7, InstanceCount: 1, MultiprocessorCount: 132, CopyEngineCount: 8, DecoderCount: 7, JpegCount: 7, OfaCount: 1, MemorySizeMB: 143360}, 8, []uint32{0}},
		{7, nvml.GpuInstanceProfileInfo{Id: 20, SliceCount: 1, InstanceCount: 1, MultiprocessorCount: 16, CopyEngineCount: 1, DecoderCount: 1, JpegCount: 1, OfaCount: 1, MemorySizeMB: 16384}, 1, []uint32{0, 1, 2, 3, 4, 5, 6}},
		{9, nvml.GpuInstanceProfileInfo{Id: 15, SliceCount: 1, InstanceCount: 4, MultiprocessorCount: 26, CopyEngineCount: 1, DecoderCount: 1, JpegCount: 1, MemorySizeMB: 33280}, 2, []uint32{0, 2, 4, 6}},
	}
	current, _, ret := d.GetMigMode()
	require.Equal(t, nvml.SUCCESS, ret)
	require.Equal(t, nvml.DEVICE_MIG_DISABLE, current, "answers do not need MIG mode")
	present := map[int]bool{}
	for _, r := range records {
		present[r.enum] = true
		info, ret := d.GetGpuInstanceProfileInfo(r.enum)
		require.Equal(t, nvml.SUCCESS, ret)
		assert.Equal(t, r.info, info)
		placements, ret := d.GetGpuInstancePossiblePlacements(&info)
		require.Equal(t, nvml.SUCCESS, ret)
		var want []nvml.GpuInstancePlacement
		for _, s := range r.at {
			want = append(want, nvml.GpuInstancePlacement{Start: s, Size: r.size})
		}
		assert.Equal(t, want, placements)
	}
	for enum := range 17 {
		if _, ret := d.GetGpuInstanceProfileInfo(enum); !present[enum] {
			assert.Equal(t, nvml.ERROR_NOT_SUPPORTED, ret, "profile %d", enum)
		}
	}
	for _, enum := range []int{-1, 17, 18, 99} {
		_, ret := d.GetGpuInstanceProfileInfo(enum)
		assert.Equal(t, nvml.ERROR_INVALID_ARGUMENT, ret, "profile %d", enum)
	}
	_, ret = d.GetGpuInstancePossiblePlacements(&nvml.GpuInstanceProfileInfo{Id: 77})
	assert.Equal(t, nvml.ERROR_NOT_SUPPORTED, ret)
}

// TestNamesFollowFromMemory: libraries compute a profile's name from its
// memory and the GPU's; the table's names must come out.
func TestNamesFollowFromMemory(t *testing.T) {
	lib := nvlib.New(nil)
	compute := map[int]int{1: 0, 2: 1, 3: 2, 4: 3, 7: 4}
	for _, key := range models.NVIDIAModels() {
		m, _ := models.NVIDIAModelByKey(key)
		for _, p := range m.Profiles {
			got, err := lib.NewMigProfile(p.Enum, compute[p.ComputeSlices], 0, p.MemoryMiB, m.MemoryMiB<<20)
			if assert.NoError(t, err, "%s %s", key, p.Name) {
				assert.Equal(t, p.Name, got.String(), key)
			}
		}
	}
}
