package session_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware/nvidia"
	"github.com/tranche-dev/tranche/pkg/hardware/nvidia/session"
	"github.com/tranche-dev/tranche/test/nvidiatest"
	"github.com/tranche-dev/tranche/test/simulator/nvdriver"
)

func TestLifeOfAPartition(t *testing.T) {
	for _, test := range []struct {
		inventory, profile string
		start              int
	}{
		{"h100x8", "1g.10gb", 6},
		{"h100x8", "1g.10gb+me", 2},
		{"h100x8", "7g.80gb", 0},
		{"h200x8", "1g.35gb", 4},
		{"h200x8", "3g.71gb", 4},
		{"a100-40x8", "1g.10gb", 0},
		{"a100-40x8", "7g.40gb", 0}, // kubernetes-sigs/dra-driver-nvidia-gpu#1480: its compute profile is not NVL's
	} {
		t.Run(test.inventory+" "+test.profile, func(t *testing.T) {
			m := simulated(t, test.inventory)
			p := m.Placement(test.profile, test.start)
			require.Empty(t, m.Partitions(p.GPU))

			made := m.Made(p)
			assert.True(t, made.Is(p))
			assert.True(t, made.Complete)
			assert.Regexp(t, "^MIG-", made.UUID)
			assert.Regexp(t, `^GI \d+$`, made.ID)
			assert.Equal(t, p.Size, made.Size)
			assert.Equal(t, []gpu.Partition{made}, m.Partitions(p.GPU))

			assert.Equal(t, made, m.Made(p), "what is there is returned")
			assert.Len(t, m.Partitions(p.GPU), 1)

			require.NoError(t, m.Destroy(t.Context(), p))
			assert.Empty(t, m.Partitions(p.GPU))
			assert.NoError(t, m.Destroy(t.Context(), p), "what is not there is no error")
		})
	}
}

func TestGPUFilledInOrder(t *testing.T) {
	m := simulated(t, "h100x8")
	g := m.GPUs()[0]
	uuids := map[string]bool{}
	for _, p := range g.Placements {
		if p.Profile == "1g.10gb" {
			uuids[m.Made(p).UUID] = true
		}
	}
	assert.Len(t, uuids, 7)
	live := m.Partitions(g.PCIAddress)
	assert.True(t, slices.IsSortedFunc(live, func(a, b gpu.Partition) int { return a.Start - b.Start }))
	for _, p := range live {
		_, published := g.Placement(p.Name())
		assert.True(t, published, p.Name())
	}
}

// GPUs are filled in random orders: a placement goes in exactly when the
// counters say that it fits beside what is there.
func TestCountersAgreeWithTheHardware(t *testing.T) {
	rtx := nvidiatest.OfModel(t, "RTX-PRO-6000-Blackwell-96GB", "")
	for _, inventory := range []string{"h100x8", "a100-40x8", rtx} {
		t.Run(filepath.Base(inventory), func(t *testing.T) {
			m := simulated(t, inventory)
			g := m.GPUs()[0]
			random := rand.New(rand.NewPCG(1, 2))
			for range 3 {
				var placed []gpu.Placement
				sum := gpu.Counters{}
				for _, n := range random.Perm(len(g.Placements)) {
					p := g.Placements[n]
					if p.Type != gpu.TypeMIG {
						continue
					}
					with := maps.Clone(sum)
					with.Add(p.Consumes)
					_, err := m.Create(t.Context(), p)
					require.Equal(t, with.Exceeds(g.Counters) == "", err == nil, "%s beside %v: %v", p.Name(), placed, err)
					if err == nil {
						sum, placed = with, append(placed, p)
					}
				}
				for _, p := range placed {
					require.NoError(t, m.Destroy(t.Context(), p))
				}
			}
		})
	}
}

func TestGPUsArePartitionedAtTheSameTime(t *testing.T) {
	m := simulated(t, "h100x8")
	var wait sync.WaitGroup
	for _, g := range m.GPUs() {
		p, ok := g.Placement(g.Name() + "-mig-1g-10gb-6")
		require.True(t, ok)
		wait.Go(func() {
			made, err := m.Create(t.Context(), p)
			assert.NoError(t, err)
			assert.True(t, made.Is(p))
			_, err = m.Live(t.Context(), p.GPU)
			assert.NoError(t, err)
			_, err = m.Inventory(t.Context())
			assert.NoError(t, err)
			assert.NoError(t, m.Destroy(t.Context(), p))
		})
	}
	wait.Wait()
}

func TestCreateNamesWhatIsInTheWay(t *testing.T) {
	m := simulated(t, "h100x8")
	m.Made(m.Placement("1g.10gb", 5))
	_, err := m.Create(t.Context(), m.Placement("3g.40gb", 4))
	assert.ErrorContains(t, err, "taken by gpu-0000-1b-00-0-mig-1g-10gb-5 (GI ")
	assert.NotContains(t, err.Error(), "3g-40gb", "who asked says what for")
	assert.Len(t, m.Partitions("0000:1b:00.0"), 1)
}

func TestCreateOfAProfileThatTheGPUHasNot(t *testing.T) {
	m := simulated(t, "h100x8")
	_, err := m.Create(t.Context(), gpu.Placement{GPU: "0000:1b:00.0", Type: gpu.TypeMIG, Profile: "1g.5gb", Start: 6, Size: 1})
	assert.ErrorContains(t, err, "no profile 1g.5gb")
	_, err = m.Create(t.Context(), gpu.Placement{GPU: "0000:1b:00.0", Type: "xcp"})
	assert.ErrorContains(t, err, "not NVIDIA's")
	_, err = m.Create(t.Context(), gpu.Placement{GPU: "0000:ff:00.0", Type: gpu.TypeMIG, Profile: "1g.10gb", Size: 1})
	assert.ErrorIs(t, err, nvml.ERROR_NOT_FOUND)
}

func TestInstanceWithoutComputeInstanceIsFinished(t *testing.T) {
	m := simulated(t, "h100x8")
	p := m.Placement("3g.40gb", 4)
	m.MIGOn()
	m.BareInstance(p)

	live := m.Partitions(p.GPU)
	require.Len(t, live, 1, "a half-made partition is seen")
	assert.True(t, live[0].Is(p))
	assert.False(t, live[0].Complete)
	assert.Empty(t, live[0].UUID)

	made := m.Made(p)
	assert.True(t, made.Complete)
	assert.Equal(t, live[0].ID, made.ID, "and finished, not made a second time")
}

func TestFoundInstanceIsLeftWhenItCannotBeFinished(t *testing.T) {
	m := simulated(t, "h100x8")
	p := m.Placement("3g.40gb", 4)
	m.MIGOn()
	m.BareInstance(p)
	m.Fail("CreateComputeInstance", nvml.ERROR_UNKNOWN, 0)
	_, err := m.Create(t.Context(), p)
	require.ErrorIs(t, err, nvml.ERROR_UNKNOWN)
	assert.Len(t, m.Partitions(p.GPU), 1, "it was not ours to remove")
}

func TestInstanceDividedBySomebodyElse(t *testing.T) {
	m := simulated(t, "h100x8")
	p := m.Placement("2g.20gb", 0)
	m.MIGOn()
	gi := m.BareInstance(p)
	for n := 1; n <= 2; n++ {
		kind, ret := gi.GetComputeInstanceProfileInfo(nvml.COMPUTE_INSTANCE_PROFILE_1_SLICE, nvml.COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED)
		require.Equal(t, nvml.SUCCESS, ret)
		_, ret = gi.CreateComputeInstance(&kind)
		require.Equal(t, nvml.SUCCESS, ret)
		_, err := m.Create(t.Context(), p)
		assert.ErrorContains(t, err, fmt.Sprintf("divided into %d compute instances by somebody else", n))
	}
	live := m.Partitions(p.GPU)
	require.Len(t, live, 1)
	assert.True(t, live[0].Complete, "programs can run in it")
	require.NoError(t, m.Destroy(t.Context(), p), "both go")
	assert.Empty(t, m.Partitions(p.GPU))
}

func TestDestroyInUseNamesTheProcess(t *testing.T) {
	m := simulated(t, "h100x8")
	p := m.Placement("1g.10gb", 3)
	made := m.Made(p)
	var gi int
	_, err := fmt.Sscanf(made.ID, "GI %d", &gi)
	require.NoError(t, err)
	require.NoError(t, nvdriver.AddProcess(m.Root, nvdriver.Process{GPU: p.GPU, GPUInstance: &gi, PID: 4711}))

	err = m.Destroy(t.Context(), p)
	require.ErrorIs(t, err, gpu.ErrInUse)
	assert.ErrorContains(t, err, "process 4711")
	assert.Len(t, m.Partitions(p.GPU), 1)

	require.NoError(t, nvdriver.RemoveProcess(m.Root, 4711))
	require.NoError(t, m.Destroy(t.Context(), p))
	assert.Empty(t, m.Partitions(p.GPU))
}

func TestDestroyThatGotHalfwayIsFinished(t *testing.T) {
	m := simulated(t, "h100x8")
	p := m.Placement("1g.10gb", 3)
	m.Made(p)
	m.Fail("GpuInstanceDestroy", nvml.ERROR_IN_USE, 1)
	require.ErrorIs(t, m.Destroy(t.Context(), p), gpu.ErrInUse)
	live := m.Partitions(p.GPU)
	require.Len(t, live, 1)
	assert.False(t, live[0].Complete, "the compute instance is gone")
	require.NoError(t, m.Destroy(t.Context(), p))
	assert.Empty(t, m.Partitions(p.GPU))
}

func TestDestroyOfAWholeGPUDoesNothing(t *testing.T) {
	m := simulated(t, "h100x8")
	m.Made(m.Whole())
	assert.NoError(t, m.Destroy(t.Context(), m.Whole()))
}

func TestMIGDeviceThatShowsUpLate(t *testing.T) {
	late := &lateDevices{hidden: 3}
	m := simulated(t, "h100x8", trapping(func(d nvml.Device) nvml.Device { return lateDevice{d, late} }))
	p := m.Placement("1g.10gb", 6)
	m.MIGOn()
	made := m.Made(p)
	assert.True(t, made.Complete)
	assert.Zero(t, late.hidden)
}

func TestMIGDeviceThatNeverShowsUpLeavesNothing(t *testing.T) {
	ctx, giveUp := context.WithCancel(t.Context())
	late := &lateDevices{hidden: 1 << 30, onHide: giveUp}
	m := simulated(t, "h100x8", trapping(func(d nvml.Device) nvml.Device { return lateDevice{d, late} }))
	p := m.Placement("1g.10gb", 6)
	_, err := m.Create(ctx, p)
	require.ErrorIs(t, err, context.Canceled)
	// On a slow machine the caller does not wait for the cleanup, which happens anyway.
	if left := (*session.StuckError)(nil); !errors.As(err, &left) {
		assert.ErrorContains(t, err, "waiting for the MIG device")
	}
	late.set(0)
	assert.Empty(t, m.Partitions(p.GPU))
}

func TestCreateInterruptedByItsDeadlineCleansUpBehindItself(t *testing.T) {
	m := simulated(t, "h100x8")
	p := m.Placement("1g.10gb", 6)
	m.SetFaults(nvdriver.Faults{Calls: []nvdriver.CallFault{{Call: "CreateComputeInstance", GPU: p.GPU, Error: nvdriver.Return(nvml.ERROR_UNKNOWN), Hang: true, Times: 1}}})
	_, err := m.Create(m.UntilFault(), p)
	require.ErrorContains(t, err, "NVML call GpuInstanceCreateComputeInstance on GPU "+p.GPU+" has not returned")
	m.SettleFaults()
	assert.Empty(t, m.Partitions(p.GPU), "the GPU instance went when the call came back")
	m.Made(p)
}

// A profile of a newer driver than our table is still seen as taken room.
func TestInstanceOfAnUnknownProfile(t *testing.T) {
	m := simulated(t, "h100x8")
	m.Made(m.Placement("3g.40gb", 4))
	d, err := nvidia.New(Config{NVML: &nvidiatest.Trap{Interface: m.NVML, Wrap: func(d nvml.Device) nvml.Device { return withoutProfile{d, nvml.GPU_INSTANCE_PROFILE_3_SLICE} }}})
	require.NoError(t, err)
	live, err := d.Live(t.Context(), "0000:1b:00.0")
	require.NoError(t, err)
	require.Len(t, live, 1)
	assert.Equal(t, "unknown9", live[0].Profile)
	assert.Equal(t, 4, live[0].Start)
	assert.Equal(t, 4, live[0].Size)
	assert.True(t, live[0].Complete)
}

func TestEditsNeedAPartition(t *testing.T) {
	m := simulated(t, "h100x8")
	p := m.Placement("1g.10gb", 6)
	_, err := m.Edits(t.Context(), p)
	assert.ErrorContains(t, err, "the partition does not exist")

	m.MIGOn()
	m.BareInstance(p)
	_, err = m.Edits(t.Context(), p)
	assert.ErrorContains(t, err, "not complete")
}

func TestGPUsWithoutMIGHaveNoPartitions(t *testing.T) {
	m := simulated(t, "l4x4")
	whole := m.Whole()
	assert.Empty(t, m.Partitions(whole.GPU))
	made := m.Made(whole)
	assert.Equal(t, m.GPUs()[0].UUID, made.UUID)
	assert.Equal(t, whole.Name(), made.Name())
	_, err := m.Create(t.Context(), gpu.Placement{GPU: whole.GPU, Type: gpu.TypeMIG, Profile: "1g.6gb", Size: 1})
	assert.ErrorContains(t, err, "does not know MIG")
}

// A driver that contradicts itself is not believed: there may be partitions.
func TestDriverThatContradictsItself(t *testing.T) {
	m := simulated(t, "h100x8", trapping(func(d nvml.Device) nvml.Device { return withoutProfile{d, -1} }))
	m.MIGOn()
	_, err := m.Live(t.Context(), firstGPU)
	assert.ErrorContains(t, err, "MIG mode is on, but the driver lists no profile")
	m.Fail("GetMigMode", nvml.ERROR_NOT_SUPPORTED, 0)
	_, err = m.Live(t.Context(), firstGPU)
	assert.ErrorContains(t, err, "it has no MIG mode, and that up to 7 MIG devices are possible")
}

// A partition at another place than the one that was asked for is none, and goes.
func TestPartitionThatIsMadeElsewhere(t *testing.T) {
	m := simulated(t, "h100x8", trapping(func(d nvml.Device) nvml.Device { return misplacing{d} }))
	_, err := m.Create(t.Context(), m.Placement("1g.10gb", 6))
	require.ErrorContains(t, err, "asked for slices 6+1, got gpu-0000-1b-00-0-mig-1g-10gb-5 with 5+1")
	assert.Empty(t, m.Partitions(firstGPU))
}
