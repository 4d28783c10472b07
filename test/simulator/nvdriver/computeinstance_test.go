package nvdriver

import (
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestComputeProfiles: what nvidia-smi mig -lcip lists below each GPU
// instance, as enum: {slices, instances, SMs}.
func TestComputeProfiles(t *testing.T) {
	for name, want := range map[string]map[int][3]uint32{
		"1g.10gb": {0: {1, 1, 16}},
		"1g.20gb": {0: {1, 1, 26}},
		"2g.20gb": {0: {1, 2, 16}, 1: {2, 1, 32}},
		"3g.40gb": {0: {1, 3, 16}, 1: {2, 1, 32}, 2: {3, 1, 60}},
		"4g.40gb": {0: {1, 4, 16}, 1: {2, 2, 32}, 3: {4, 1, 64}},
		"7g.80gb": {0: {1, 7, 16}, 1: {2, 3, 32}, 2: {3, 2, 60}, 3: {4, 1, 64}, 4: {7, 1, 132}},
	} {
		t.Run(name, func(t *testing.T) {
			d := handleOf(t, machine(t, "h100x8"), 0)
			migOn(t, d)
			gi := makeGI(t, d, name, 0)
			got := map[int][3]uint32{}
			for enum := range knownBy580 {
				info, ret := gi.GetComputeInstanceProfileInfo(enum, nvml.COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED)
				if ret != nvml.SUCCESS {
					assert.Equal(t, nvml.ERROR_NOT_SUPPORTED, ret)
					continue
				}
				assert.Equal(t, uint32(enum), info.Id)
				got[enum] = [3]uint32{info.SliceCount, info.InstanceCount, info.MultiprocessorCount}
				placements, ret := gi.GetComputeInstancePossiblePlacements(&info)
				require.Equal(t, nvml.SUCCESS, ret)
				assert.Len(t, placements, int(info.InstanceCount))
				free, ret := gi.GetComputeInstanceRemainingCapacity(&info)
				require.Equal(t, nvml.SUCCESS, ret)
				assert.Equal(t, int(info.InstanceCount), free)
			}
			assert.Equal(t, want, got)
			for _, enum := range []int{-1, knownBy580, nvml.COMPUTE_INSTANCE_PROFILE_COUNT} {
				assert.Equal(t, nvml.ERROR_INVALID_ARGUMENT, second(gi.GetComputeInstanceProfileInfo(enum, 0)))
			}
			assert.Equal(t, nvml.ERROR_INVALID_ARGUMENT, second(gi.GetComputeInstanceProfileInfo(0, 1)))
			assert.Panics(t, func() { gi.GetComputeInstanceProfileInfoV(0, 0) })
		})
	}
}

// knownBy580 is how many profiles of compute instances the library of R580 has.
const knownBy580 = 8

func TestComputeInstances(t *testing.T) {
	d := handleOf(t, machine(t, "a100-40x8"), 0)
	gi := makeGI(t, d, "3g.20gb", 4)
	one, ret := gi.GetComputeInstanceProfileInfo(0, 0)
	require.Equal(t, nvml.SUCCESS, ret)
	two, ret := gi.GetComputeInstanceProfileInfo(1, 0)
	require.Equal(t, nvml.SUCCESS, ret)

	a, ret := gi.CreateComputeInstanceWithPlacement(&one, &nvml.ComputeInstancePlacement{Start: 2, Size: 1})
	require.Equal(t, nvml.SUCCESS, ret)
	b, ret := gi.CreateComputeInstance(&two)
	require.Equal(t, nvml.SUCCESS, ret)
	assert.Equal(t, nvml.ERROR_INSUFFICIENT_RESOURCES, second(gi.CreateComputeInstance(&one)))
	assert.Equal(t, nvml.ERROR_INVALID_ARGUMENT, second(gi.CreateComputeInstanceWithPlacement(&two, &nvml.ComputeInstancePlacement{Start: 1, Size: 2})))
	assert.Equal(t, nvml.ERROR_NOT_SUPPORTED, second(gi.CreateComputeInstance(&nvml.ComputeInstanceProfileInfo{Id: 7})))
	free, _ := gi.GetComputeInstanceRemainingCapacity(&one)
	assert.Zero(t, free)

	info, ret := a.GetInfo()
	require.Equal(t, nvml.SUCCESS, ret)
	assert.Equal(t, uint32(0), info.Id)
	assert.Equal(t, nvml.ComputeInstancePlacement{Start: 2, Size: 1}, info.Placement)
	assert.Same(t, d, info.Device, "the parent device, not the MIG device")
	assert.Equal(t, gi, info.GpuInstance)
	info, _ = b.GetInfo()
	assert.Equal(t, []uint32{1, 1}, []uint32{info.Id, info.ProfileId})

	list, ret := gi.GetComputeInstances(&two)
	require.Equal(t, nvml.SUCCESS, ret)
	assert.Len(t, list, 1)
	same, ret := gi.GetComputeInstanceById(1)
	require.Equal(t, nvml.SUCCESS, ret)
	assert.Equal(t, b, same)
	assert.Equal(t, nvml.ERROR_NOT_FOUND, second(gi.GetComputeInstanceById(5)))
	require.Equal(t, nvml.SUCCESS, a.Destroy())
	_, ret = gi.CreateComputeInstance(&one)
	require.Equal(t, nvml.SUCCESS, ret)
	_, ret = gi.GetComputeInstanceById(0)
	assert.Equal(t, nvml.SUCCESS, ret, "ids are used again")
}
