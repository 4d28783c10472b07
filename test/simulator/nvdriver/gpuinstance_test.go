package nvdriver

import (
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/test/simulator/memory"
)

func TestCreateGPUInstanceRefusals(t *testing.T) {
	d := handleOf(t, machine(t, "h100x8"), 0)
	_, ret := tryGI(t, d, "1g.10gb", 0)
	assert.Equal(t, nvml.ERROR_NOT_SUPPORTED, ret, "MIG mode is off")

	migOn(t, d)
	for name, tt := range map[string]struct{ id, start, size uint32 }{
		"unknown profile":         {77, 0, 1},
		"start beyond the last":   {19, 7, 1},
		"size of another profile": {19, 0, 2},
		"start between":           {14, 1, 2},
		"4g in the upper half":    {5, 4, 4},
	} {
		_, ret := d.CreateGpuInstanceWithPlacement(&nvml.GpuInstanceProfileInfo{Id: tt.id}, &nvml.GpuInstancePlacement{Start: tt.start, Size: tt.size})
		assert.Equal(t, nvml.ERROR_INVALID_ARGUMENT, ret, name)
	}
	makeGI(t, d, "3g.40gb", 4)
	for _, tt := range []struct {
		name  string
		start uint32
	}{{"3g.40gb", 4}, {"1g.10gb", 6}, {"1g.20gb", 6}, {"2g.20gb", 4}, {"7g.80gb", 0}} {
		_, ret := tryGI(t, d, tt.name, tt.start)
		assert.Equal(t, nvml.ERROR_INSUFFICIENT_RESOURCES, ret, "%s at %d overlaps", tt.name, tt.start)
	}
	makeGI(t, d, "4g.40gb", 0)
}

// TestWhatFitsTogether takes the same instances from a GPU until one is
// refused, engines included.
func TestWhatFitsTogether(t *testing.T) {
	type piece struct {
		name  string
		start uint32
	}
	for name, tt := range map[string]struct {
		model string
		fit   []piece
		no    piece
	}{
		"h100 seven 1g":          {"H100-80GB", []piece{{"1g.10gb", 0}, {"1g.10gb", 1}, {"1g.10gb", 2}, {"1g.10gb", 3}, {"1g.10gb", 4}, {"1g.10gb", 5}, {"1g.10gb", 6}}, piece{"1g.10gb+me", 6}},
		"h100 four 1g.20gb":      {"H100-80GB", []piece{{"1g.20gb", 6}, {"1g.20gb", 4}, {"1g.20gb", 2}, {"1g.20gb", 0}}, piece{"1g.10gb", 0}},
		"h100 one +me":           {"H100-80GB", []piece{{"1g.10gb+me", 0}}, piece{"1g.10gb+me", 1}},
		"a100 +me beside 3g":     {"A100-40GB", []piece{{"3g.20gb", 4}, {"1g.5gb+me", 0}}, piece{"1g.5gb+me", 1}},
		"a100 decoders are five": {"A100-40GB", []piece{{"1g.10gb", 0}, {"1g.10gb", 2}, {"1g.10gb", 4}, {"1g.10gb", 6}}, piece{"7g.40gb", 0}},
		"a30 +me of two kinds":   {"A30-24GB", []piece{{"2g.12gb+me", 0}, {"1g.6gb", 2}}, piece{"1g.6gb+me", 3}},
		"rtx all media":          {"RTX-PRO-6000-Blackwell-96GB", []piece{{"1g.24gb+me.all", 0}, {"1g.24gb-me", 3}, {"2g.48gb-me", 6}}, piece{"1g.24gb", 6}},
		"rtx media blocks all":   {"RTX-PRO-6000-Blackwell-96GB", []piece{{"1g.24gb", 0}}, piece{"1g.24gb+me.all", 3}},
		"rtx gfx and compute":    {"RTX-PRO-6000-Blackwell-96GB", []piece{{"1g.24gb+gfx", 0}, {"1g.24gb+me", 3}, {"2g.48gb+gfx", 6}}, piece{"1g.24gb", 9}},
		"b200 3g and 4g":         {"B200-180GB", []piece{{"3g.90gb", 4}, {"4g.90gb", 0}}, piece{"1g.23gb", 0}},
	} {
		t.Run(name, func(t *testing.T) {
			d := handleOf(t, open(t, parsed(t, "gpus: [{model: "+tt.model+", migMode: enabled}]"), memory.TempDir(t)), 0)
			for _, p := range tt.fit {
				makeGI(t, d, p.name, p.start)
			}
			_, ret := tryGI(t, d, tt.no.name, tt.no.start)
			assert.Equal(t, nvml.ERROR_INSUFFICIENT_RESOURCES, ret)
		})
	}
}

func TestGPUInstanceIDs(t *testing.T) {
	d := handleOf(t, machine(t, "a100-40x8"), 0)
	for _, tt := range []struct {
		name  string
		start uint32
		id    uint32
	}{
		// As nvidia-smi mig -lgi prints them on an A100.
		{"4g.20gb", 0, 1}, {"2g.10gb", 4, 5}, {"1g.5gb", 6, 13},
	} {
		info, ret := makeGI(t, d, tt.name, tt.start).GetInfo()
		require.Equal(t, nvml.SUCCESS, ret)
		assert.Equal(t, tt.id, info.Id, tt.name)
		assert.Equal(t, tt.start, info.Placement.Start)
		assert.Same(t, d, info.Device)
	}
	gi, ret := d.GetGpuInstanceById(5)
	require.Equal(t, nvml.SUCCESS, ret)
	info, _ := gi.GetInfo()
	assert.Equal(t, uint32(14), info.ProfileId)
	assert.Equal(t, uint32(2), info.Placement.Size)
	assert.Equal(t, nvml.ERROR_NOT_FOUND, second(d.GetGpuInstanceById(7)))
}

func TestDriverChoosesThePlacement(t *testing.T) {
	d := handleOf(t, machine(t, "a100-40x8"), 0)
	for _, tt := range []struct {
		name  string
		start uint32
	}{{"1g.5gb", 6}, {"2g.10gb", 4}, {"4g.20gb", 0}} { // nvidia-smi mig -cgi 19,14,5
		info := profileInfo(t, d, tt.name)
		gi, ret := d.CreateGpuInstance(&info)
		require.Equal(t, nvml.SUCCESS, ret)
		got, _ := gi.GetInfo()
		assert.Equal(t, tt.start, got.Placement.Start, tt.name)
	}
	info := profileInfo(t, d, "1g.5gb")
	assert.Equal(t, nvml.ERROR_INSUFFICIENT_RESOURCES, second(d.CreateGpuInstance(&info)))
}

func TestListingAndCapacity(t *testing.T) {
	d := handleOf(t, machine(t, "a100-40x8"), 0)
	one, big := profileInfo(t, d, "1g.5gb"), profileInfo(t, d, "1g.10gb")
	free := func(info nvml.GpuInstanceProfileInfo) int {
		n, ret := d.GetGpuInstanceRemainingCapacity(&info)
		require.Equal(t, nvml.SUCCESS, ret)
		return n
	}
	assert.Equal(t, []int{7, 4}, []int{free(one), free(big)})
	makeGI(t, d, "1g.5gb", 0)
	makeGI(t, d, "1g.10gb", 2)
	assert.Equal(t, []int{4, 2}, []int{free(one), free(big)})
	assert.Equal(t, nvml.ERROR_INVALID_ARGUMENT, second(d.GetGpuInstanceRemainingCapacity(&nvml.GpuInstanceProfileInfo{Id: 77})))

	list, ret := d.GetGpuInstances(&one)
	require.Equal(t, nvml.SUCCESS, ret)
	require.Len(t, list, 1, "only that profile's")
	info, _ := list[0].GetInfo()
	assert.Equal(t, uint32(7), info.Id)
	me := profileInfo(t, d, "1g.5gb+me")
	list, ret = d.GetGpuInstances(&me)
	require.Equal(t, nvml.SUCCESS, ret)
	assert.Empty(t, list)
}

func TestHandlesGoStale(t *testing.T) {
	d := handleOf(t, machine(t, "a100-40x8"), 0)
	old := makeGI(t, d, "1g.5gb", 0)
	oldCI := makeCI(t, old)
	require.Equal(t, nvml.SUCCESS, oldCI.Destroy())
	require.Equal(t, nvml.SUCCESS, old.Destroy())
	again := makeGI(t, d, "1g.5gb", 0)
	makeCI(t, again)
	for what, ret := range map[string]nvml.Return{
		"info": second(old.GetInfo()), "destroy": old.Destroy(), "ci info": second(oldCI.GetInfo()), "ci destroy": oldCI.Destroy(),
		"list": second(old.GetComputeInstances(&nvml.ComputeInstanceProfileInfo{InstanceCount: 1})),
		"find": second(old.GetComputeInstanceById(0)), "profile": second(old.GetComputeInstanceProfileInfo(0, 0)),
		"placements": second(old.GetComputeInstancePossiblePlacements(&nvml.ComputeInstanceProfileInfo{})),
		"capacity":   second(old.GetComputeInstanceRemainingCapacity(&nvml.ComputeInstanceProfileInfo{})),
		"create":     second(old.CreateComputeInstance(&nvml.ComputeInstanceProfileInfo{})),
	} {
		assert.Equal(t, nvml.ERROR_INVALID_ARGUMENT, ret, what)
	}
	assert.Equal(t, nvml.SUCCESS, second(again.GetInfo()))
}

func TestDestroyInUse(t *testing.T) {
	n, d := machineAndGPU(t, "a100-40x8")
	gi := makeGI(t, d, "1g.5gb", 0)
	ci := makeCI(t, gi)
	seven, eight := 7, 8
	require.NoError(t, AddProcess(n.root, Process{GPU: pciOf(d), GPUInstance: &seven, PID: 99}))
	require.NoError(t, AddProcess(n.root, Process{GPU: pciOf(d), GPUInstance: &eight, PID: 98}))
	assert.Equal(t, nvml.ERROR_IN_USE, ci.Destroy())
	assert.Equal(t, nvml.ERROR_IN_USE, gi.Destroy())
	require.NoError(t, RemoveProcess(n.root, 99))
	assert.Equal(t, nvml.ERROR_IN_USE, gi.Destroy(), "compute instance first")
	assert.Equal(t, nvml.SUCCESS, ci.Destroy())
	require.NoError(t, AddProcess(n.root, Process{GPU: pciOf(d), GPUInstance: &seven, PID: 99}))
	assert.Equal(t, nvml.ERROR_IN_USE, gi.Destroy(), "a process without a compute instance")
	require.NoError(t, RemoveProcess(n.root, 99))
	assert.Equal(t, nvml.SUCCESS, gi.Destroy())
}
