package nvidia

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware/nvidia/session"
	"github.com/tranche-dev/tranche/test/golden"
	"github.com/tranche-dev/tranche/test/nvidiatest"
	"github.com/tranche-dev/tranche/test/simulator/nvdriver"
)

func TestGoldenInventories(t *testing.T) {
	for _, name := range nvidiatest.Inventories(t) {
		t.Run(name, func(t *testing.T) { checkGolden(t, name, simulated(t, name).GPUs()) })
	}
}

// checkGolden compares the first GPU of each kind in full, and the others by their
// facts.
func checkGolden(t *testing.T, name string, gpus []gpu.GPU) {
	t.Helper()
	var b strings.Builder
	seen := map[string]bool{}
	for _, g := range gpus {
		numa := "none"
		if g.NUMANode != nil {
			numa = fmt.Sprint(*g.NUMANode)
		}
		fmt.Fprintf(&b, "%s %s index=%d minor=%d %q %q %s driver=%s CUDA=%s partitionable=%t pci=%s of %s numa=%s root=%s links=%s placements=%d\n", g.Name(), g.Vendor,
			g.Index, g.Minor, g.ProductName, g.Architecture, g.CUDAComputeCapability, g.DriverVersion, g.CUDADriverVersion, g.Partitionable, g.PCIID, g.PCISubsystemID, numa, g.PCIeRoot, cmp.Or(g.LinkGroup, "none"), len(g.Placements))
		kind := fmt.Sprint(g.ProductName, len(g.Placements))
		if seen[kind] {
			continue
		}
		seen[kind] = true
		fmt.Fprintf(&b, "  counters: %s\n", numbers(g.Counters))
		for _, p := range g.Placements {
			fmt.Fprintf(&b, "  %s: %s %s %d MiB, %d SMs, %s; consumes %s%s\n",
				p.Name(), p.Type, p.Profile, p.Memory>>20, p.ComputeUnits, numbers(p.Engines), numbers(p.Consumes), map[bool]string{true: "; static only"}[p.StaticOnly])
		}
	}
	golden.Equal(t, filepath.Join("testdata", name+".golden"), b.String())
}

func numbers[M ~map[string]int64](m M) string {
	var texts []string
	for _, name := range slices.Sorted(maps.Keys(m)) {
		texts = append(texts, fmt.Sprintf("%s=%d", strings.Replace(name, "memory-slice-", "m", 1), m[name]))
	}
	return strings.Join(texts, " ")
}

// The names that we compute must be those that the driver tells.
func TestComputedNamesAreTheDriversOwn(t *testing.T) {
	hideNames := trapping(func(d nvml.Device) nvml.Device { return struct{ nvml.Device }{d} })
	for _, name := range []string{"h100x8", "h200x8", "a100-40x8"} {
		t.Run(name, func(t *testing.T) {
			told, computed := simulated(t, name).GPUs(), simulated(t, name, hideNames).GPUs()
			assert.Equal(t, namesOf(told[0]), namesOf(computed[0]))
		})
	}
	for _, model := range []string{"RTX-PRO-6000-Blackwell-96GB", "H100-94GB-NVL", "A100-80GB"} {
		t.Run(model, func(t *testing.T) {
			path := nvidiatest.OfModel(t, model, "")
			assert.Equal(t, namesOf(simulated(t, path).GPUs()[0]), namesOf(simulated(t, path, hideNames).GPUs()[0]))
		})
	}
}

func namesOf(g gpu.GPU) []string {
	var all []string
	for _, p := range g.Placements {
		all = append(all, p.Name())
	}
	return all
}

func TestAmpereOffersWhatItsModeAllows(t *testing.T) {
	on := simulated(t, "a100-40x8").GPUs()[0]
	for _, p := range on.Placements {
		assert.Equal(t, gpu.TypeMIG, p.Type)
	}
	off := simulated(t, nvidiatest.OfModel(t, "A100-40GB", "  migMode: disabled\n")).GPUs()[0]
	require.Len(t, off.Placements, 1)
	assert.Equal(t, gpu.TypeGPU, off.Placements[0].Type)
	assert.Equal(t, on.Counters, off.Counters, "counters stay when the mode changes: a change rewrites the whole pool")
	there := on.WithMIG(gpu.MIGOff)
	assert.Equal(t, gpu.TypeGPU, there.Placements[0].Type)
	assert.Equal(t, on.Counters, there.Counters)
}

// guest is a GPU of a virtual machine whose hypervisor owns the mode.
type guest struct{ nvml.Device }

func (guest) GetVirtualizationMode() (nvml.GpuVirtualizationMode, nvml.Return) {
	return nvml.GPU_VIRTUALIZATION_MODE_VGPU, nvml.SUCCESS
}

func TestVGPUGuestNeverSwitchesTheMode(t *testing.T) {
	m := simulated(t, "h100x8", trapping(func(d nvml.Device) nvml.Device { return guest{d} }))
	placements := m.GPUs()[0].Placements
	require.Len(t, placements, 1)
	_, err := m.Create(t.Context(), gpu.Placement{GPU: placements[0].GPU, Type: gpu.TypeMIG, Profile: "1g.10gb", Start: 6, Size: 1})
	assert.ErrorContains(t, err, "vGPU")
	current, pending := m.MIGModes()
	assert.Zero(t, current)
	assert.Zero(t, pending)
}

func TestMachineThatDoesNotTellItsTopology(t *testing.T) {
	m := simulated(t, "l4x4", func(c *Config) { c.SysRoot = t.TempDir() })
	for _, g := range m.GPUs() {
		assert.Nil(t, g.NUMANode)
		assert.Empty(t, g.PCIeRoot)
	}
}

func TestLostGPUHidesNoOther(t *testing.T) {
	m := simulated(t, "h100x8")
	lost := m.GPUs()[3].PCIAddress
	m.SetFaults(nvdriver.Faults{Lost: []string{lost}})

	gpus, err := m.Inventory(t.Context())
	assert.Len(t, gpus, 7)
	var broken *gpu.InventoryError
	require.ErrorAs(t, err, &broken)
	require.Len(t, broken.GPUs, 1)
	assert.Equal(t, lost, broken.GPUs[0].PCIAddress, "known from when it last answered")
	assert.ErrorIs(t, err, nvml.ERROR_GPU_IS_LOST)
	assert.ErrorContains(t, err, "fell off the bus")

	m.NoFaults()
	assert.Len(t, m.GPUs(), 8)
}

func TestGPULostFromTheStartIsNamedByItsIndex(t *testing.T) {
	m := simulated(t, "h100x8")
	m.SetFaults(nvdriver.Faults{Lost: []string{"0000:43:00.0"}})
	_, err := m.Inventory(t.Context())
	var broken *gpu.InventoryError
	require.ErrorAs(t, err, &broken)
	assert.Equal(t, "NVML index 1", broken.GPUs[0].ID)
	assert.Empty(t, broken.GPUs[0].PCIAddress)
	assert.ErrorContains(t, err, "GPU with NVML index 1")
}

func TestInventoryFailsAsAWholeOnlyWithoutNVML(t *testing.T) {
	m := simulated(t, "l4x4")
	require.NoError(t, m.Close(t.Context()))
	m.Fail("Init", nvml.ERROR_DRIVER_NOT_LOADED, 0)
	gpus, err := m.Inventory(t.Context())
	assert.Empty(t, gpus)
	assert.ErrorContains(t, err, "kernel module is not loaded")
	var broken *gpu.InventoryError
	assert.False(t, errors.As(err, &broken))
}

func TestLostSessionIsOpenedAgain(t *testing.T) {
	m := simulated(t, "l4x4")
	address := m.GPUs()[0].PCIAddress
	require.NoError(t, m.Close(t.Context()))
	_, err := m.Live(t.Context(), address)
	require.NoError(t, err)
	require.NoError(t, m.Close(t.Context()))
	assert.Len(t, m.GPUs(), 4)
}

// doubled lists a profile a second time under another number, and one more
// under a name that is taken.
type doubled struct{ nvml.Device }

func (d doubled) GetGpuInstanceProfileInfo(enum int) (nvml.GpuInstanceProfileInfo, nvml.Return) {
	switch enum {
	case nvml.GPU_INSTANCE_PROFILE_1_SLICE_REV2 + 100: // never asked
		return nvml.GpuInstanceProfileInfo{}, nvml.ERROR_INVALID_ARGUMENT
	case nvml.GPU_INSTANCE_PROFILE_8_SLICE: // the same id again
		return d.Device.GetGpuInstanceProfileInfo(nvml.GPU_INSTANCE_PROFILE_3_SLICE)
	case nvml.GPU_INSTANCE_PROFILE_1_SLICE_GFX + 7: // the same name under another id
		info, ret := d.Device.GetGpuInstanceProfileInfo(nvml.GPU_INSTANCE_PROFILE_3_SLICE)
		info.Id = 77
		return info, ret
	}
	return d.Device.GetGpuInstanceProfileInfo(enum)
}

func TestProfileListedTwice(t *testing.T) {
	m := simulated(t, "h100x8", trapping(func(d nvml.Device) nvml.Device { return doubled{d} }))
	all := namesOf(m.GPUs()[0])
	assert.Equal(t, namesOf(simulated(t, "h100x8").GPUs()[0]), all)
	slices.Sort(all)
	assert.Len(t, slices.Compact(all), 26, "no name twice")
}

func TestInventoryReturnsWhenOneGPUHangs(t *testing.T) {
	m := simulated(t, "h100x8")
	hung := m.GPUs()[2].PCIAddress
	m.SetFaults(nvdriver.Faults{Calls: []nvdriver.CallFault{{Call: "GetMemoryInfo", GPU: hung, Hang: true}}})
	t.Cleanup(func() { m.SettleFaults() })

	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	gpus, err := m.Inventory(ctx)
	assert.Len(t, gpus, 7)
	var broken *gpu.InventoryError
	require.ErrorAs(t, err, &broken)
	assert.Equal(t, hung, broken.GPUs[0].PCIAddress)
	var stuck *session.StuckError
	assert.ErrorAs(t, err, &stuck)
}

// reservesForMIG is a GPU of which the driver reserves more memory while MIG is on.
type reservesForMIG struct{ nvml.Device }

func (d reservesForMIG) GetMemoryInfo_v2() (nvml.Memory_v2, nvml.Return) {
	memory, ret := d.Device.GetMemoryInfo_v2()
	if on, _, _ := d.GetMigMode(); on == nvml.DEVICE_MIG_ENABLE {
		memory.Reserved += 64 << 20
	}
	return memory, ret
}

// What is offered of the whole GPU does not follow what the driver reserves for MIG.
func TestWholeGPUIsAsLargeWithMIGOn(t *testing.T) {
	m := simulated(t, "h100x8", trapping(func(d nvml.Device) nvml.Device { return reservesForMIG{d} }))
	before := m.GPUs()
	m.MIGOn()
	assert.Equal(t, before, m.GPUs())
}

// The names are those of NVIDIA's DRA driver; a number that is newer than our nvml.h has none.
func TestArchitectures(t *testing.T) {
	for number, want := range map[nvml.DeviceArchitecture]string{
		2: "Kepler", 3: "Maxwell", 4: "Pascal", 5: "Volta", 6: "Turing", 7: "Ampere", 8: "Ada Lovelace", 9: "Hopper", 10: "Blackwell", 13: "Rubin",
		nvml.DEVICE_ARCH_UNKNOWN: "", 99: "",
	} {
		assert.Equal(t, want, architectures[number], number)
	}
}

func TestCUDAVersion(t *testing.T) {
	for encoded, want := range map[int]string{12020: "12.2", 13000: "13.0", 13010: "13.1", 0: "", -1: ""} {
		assert.Equal(t, want, cudaVersion(encoded))
	}
}

// A GPU is published without what its driver does not report, and not if that cannot be read.
func TestVersionsThatTheDriverDoesNotReport(t *testing.T) {
	told := answers{architecture: nvml.ERROR_NOT_SUPPORTED, capability: nvml.ERROR_NOT_SUPPORTED, cores: nvml.ERROR_NOT_SUPPORTED}
	m := simulated(t, "l4x4", trapping(func(d nvml.Device) nvml.Device { return untold{d, &told} }))
	g := m.GPUs()[0]
	assert.Empty(t, g.Architecture+g.CUDAComputeCapability)
	assert.Equal(t, []string{"580.159.04", "13.0"}, []string{g.DriverVersion, g.CUDADriverVersion})
	assert.NotEmpty(t, g.Placements)
	assert.Zero(t, g.ComputeUnits)
	for _, code := range []*nvml.Return{&told.architecture, &told.capability, &told.cores} {
		before := *code
		*code = nvml.ERROR_UNKNOWN
		_, err := m.Inventory(t.Context())
		require.ErrorIs(t, err, nvml.ERROR_UNKNOWN)
		*code = before
	}
	told.cores, told.capability = nvml.SUCCESS, nvml.SUCCESS
	assert.Zero(t, m.GPUs()[0].ComputeUnits, "it is not known how many cores an SM of compute capability 3.5 has")
}

// untold is a GPU of which the driver does not tell everything.
type untold struct {
	nvml.Device
	*answers
}

type answers struct{ architecture, capability, cores nvml.Return }

func (d untold) GetArchitecture() (nvml.DeviceArchitecture, nvml.Return) { return 0, d.architecture }

func (d untold) GetCudaComputeCapability() (int, int, nvml.Return) { return 3, 5, d.capability }

func (d untold) GetNumGpuCores() (int, nvml.Return) { return 2880, d.cores }
