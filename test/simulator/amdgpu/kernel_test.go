package amdgpu

import (
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/tranche-dev/tranche/test/simulator/memory"
)

const first = "0000:05:00.0" // of mi300x8

func TestFreshGPU(t *testing.T) {
	k := machine(t, "mi300x8")
	for name, want := range map[string]string{
		"current_compute_partition": "SPX", "available_compute_partition": "SPX, DPX, QPX, CPX",
		"current_memory_partition": "NPS1", "available_memory_partition": "NPS1, NPS2, NPS4",
		"vendor": "0x1002", "device": "0x74a1", "numa_node": "0", "product_name": "AMD Instinct MI300X OAM",
		"mem_info_vram_total": "206141652992",
	} {
		assert.Equal(t, want, read(t, k, of(first, name)), name)
	}
	assert.Regexp(t, "^[0-9a-f]{16}$", read(t, k, of(first, "unique_id")))
	assert.Equal(t, []string{"card0", "renderD128"}, names(t, k, of(first, "drm")))
	assert.Equal(t, "6.16.13", read(t, k, "/sys/class/drm/card0/device/driver/module/version"))
	assert.NotEmpty(t, read(t, k, "/sys/class/drm/card0/device/driver/module/srcversion"))
	real, err := k.EvalSymlinks("/sys/bus/pci/drivers/amdgpu/" + first)
	require.NoError(t, err)
	assert.Equal(t, "/sys/devices/pci0000:00/0000:00:01.1/0000:05:00.0", real)
	assert.Len(t, names(t, k, "/sys/bus/pci/devices"), 8)
	assert.Len(t, names(t, k, "/sys/devices/platform"), 56, "seven beside each GPU, in SPX too")
	assert.Len(t, names(t, k, "/dev/dri"), 128, "64 cards and their render nodes")
	nodes := gpuNodes(t, k, "")
	require.Len(t, nodes, 8)
	assert.Equal(t, []uint64{128, 136, 144, 152, 160, 168, 176, 184}, values(nodes, "drm_render_minor"))
	assert.Equal(t, 2, nodes[0].number, "behind the processors")
	assert.Equal(t, map[string]uint64{"simd_count": 1216, "num_xcc": 8, "gfx_target_version": 90402, "array_count": 32},
		map[string]uint64{"simd_count": nodes[0].property["simd_count"], "num_xcc": nodes[0].property["num_xcc"],
			"gfx_target_version": nodes[0].property["gfx_target_version"], "array_count": nodes[0].property["array_count"]})
}

// Facts that real machines have shown: nodes 2 and 3 of eight MI300X in CPX
// (ROCm/k8s-device-plugin testdata/topo-mi300-cpx).
func TestNodesOfRealMI300X(t *testing.T) {
	k := machine(t, "mi300x8")
	require.NoError(t, switchTo(k, first, "CPX"))
	nodes := gpuNodes(t, k, first)
	require.Len(t, nodes, 8)
	for i, n := range nodes {
		assert.EqualValues(t, 1280+i, n.property["location_id"])
		assert.EqualValues(t, 128+i, n.property["drm_render_minor"])
	}
	for name, want := range map[string]uint64{
		"cpu_cores_count": 0, "simd_count": 152, "mem_banks_count": 1, "array_count": 4, "simd_arrays_per_engine": 1,
		"cu_per_simd_array": 10, "simd_per_cu": 4, "gfx_target_version": 90402, "vendor_id": 4098, "device_id": 29857,
		"domain": 0, "num_sdma_engines": 2, "num_sdma_xgmi_engines": 0, "num_sdma_queues_per_engine": 8,
		"num_cp_queues": 24, "max_engine_clk_fcompute": 2100, "local_mem_size": 0, "num_xcc": 1,
	} {
		assert.Equal(t, want, nodes[0].property[name], name)
	}
}

// And those of MI308X in CPX under NPS4 (testdata/topology-parsing-mi308).
func TestNodesOfRealMI308X(t *testing.T) {
	k := machine(t, "mi308x8")
	nodes := gpuNodes(t, k, "")
	require.Len(t, nodes, 32)
	assert.Equal(t, []uint64{128, 129, 130, 131, 136, 137}, values(nodes, "drm_render_minor")[:6])
	assert.Equal(t, []uint64{2560, 2561, 2562, 2563}, values(nodes, "location_id")[:4])
	assert.Equal(t, []int64{51539607552, 51539607552, 51539607552, 51522830336},
		[]int64{nodes[0].memory, nodes[1].memory, nodes[2].memory, nodes[3].memory})
	assert.EqualValues(t, 80, nodes[0].property["simd_count"])
	domains := values(nodes, "domain")
	assert.EqualValues(t, 0, domains[0])
	assert.EqualValues(t, 1, domains[31])
	assert.Contains(t, names(t, k, "/sys/devices/platform"), "amdgpu_xcp.0")
	assert.Equal(t, "CPX", read(t, k, of("0000:0a:00.0", "current_compute_partition")))
	assert.Equal(t, "CPX", read(t, k, of("0000:0a:00.0", "available_compute_partition")))
}

func TestSwitch(t *testing.T) {
	k := machine(t, "mi300x8")
	before := gpuNodes(t, k, "")
	generation := read(t, k, "/sys/class/kfd/kfd/topology/generation_id")
	for _, test := range []struct {
		mode string
		want []int64 // MiB
	}{
		{"DPX", []int64{98296, 98296}}, {"QPX", []int64{49148, 49148, 49148, 49148}},
		{"CPX", []int64{24574, 24574, 24574, 24574, 24574, 24574, 24574, 24574}}, {"SPX", []int64{196592}},
	} {
		mode, want := test.mode, test.want
		require.NoError(t, switchTo(k, first, mode))
		assert.Equal(t, mode, read(t, k, of(first, "current_compute_partition")))
		nodes := gpuNodes(t, k, first)
		require.Len(t, nodes, len(want), mode)
		for i, n := range nodes {
			assert.Equal(t, want[i]<<20, n.memory, mode)
			assert.EqualValues(t, 128+i, n.property["drm_render_minor"], "the minors stay")
			assert.EqualValues(t, 1216/len(want), n.property["simd_count"])
			for _, old := range before {
				assert.NotEqual(t, old.gpuID, n.gpuID, "gpu_ids are new")
			}
		}
		before = append(before, nodes...)
		assert.EqualValues(t, 136, gpuNodes(t, k, "")[0].property["drm_render_minor"], "the GPU went behind the others")
	}
	assert.NotEqual(t, generation, read(t, k, "/sys/class/kfd/kfd/topology/generation_id"))
	assert.Len(t, names(t, k, "/dev/dri"), 128)
}

func TestSwitchesThatTheKernelRefuses(t *testing.T) {
	for name, test := range map[string]struct {
		inventory, pci, mode string
		want                 error
	}{
		"no such mode":                     {"mi300x8", first, "XPX", unix.EINVAL},
		"nothing":                          {"mi300x8", first, "", unix.EINVAL},
		"a mode that the chip has not":     {"mi300x8", first, "TPX", unix.EINVAL},
		"not under this memory mode":       {"mi308x8", "0000:0a:00.0", "SPX", unix.EINVAL},
		"three of six":                     {"mi300a4", "0001:01:00.0", "TPX", nil},
		"four of six":                      {"mi300a4", "0001:01:00.0", "QPX", unix.EINVAL},
		"half of an MI350X under NPS2":     {"mi350x8", first, "CPX", nil},
		"whole MI350X under NPS2":          {"mi350x8", first, "SPX", unix.EINVAL},
		"no such GPU":                      {"mi300x8", "0000:06:00.0", "CPX", unix.ENOENT},
		"small letters, with what follows": {"mi300x8", first, "cpx\n", nil},
	} {
		t.Run(name, func(t *testing.T) {
			k := machine(t, test.inventory)
			err := switchTo(k, test.pci, test.mode)
			if test.want == nil {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, test.want)
			var pathError *fs.PathError
			require.ErrorAs(t, err, &pathError)
		})
	}
}

func TestOnlySomeFilesTakeWrites(t *testing.T) {
	k := machine(t, "mi300x8")
	for name, want := range map[string]error{
		of(first, "available_compute_partition"):         unix.EACCES,
		of(first, "unique_id"):                           unix.EACCES,
		of(first, ""):                                    unix.EISDIR,
		"/dev/dri/renderD128":                            unix.EACCES,
		of(first, "none"):                                fs.ErrNotExist,
		of(first, "vendor/none"):                         unix.ENOTDIR,
		"/sys/class/kfd/kfd/topology/nodes/2/properties": unix.EACCES,
	} {
		assert.ErrorIs(t, k.WriteFile(name, []byte("CPX")), want, name)
	}
	_, err := k.ReadFile(of(first, "none"))
	assert.ErrorIs(t, err, fs.ErrNotExist)
	_, err = k.ReadFile(of(first, ""))
	assert.ErrorIs(t, err, unix.EISDIR)
	_, err = k.ReadDir(of(first, "vendor"))
	assert.ErrorIs(t, err, unix.ENOTDIR)
	_, err = k.ReadFile("relative")
	assert.ErrorIs(t, err, fs.ErrNotExist)
	assert.Equal(t, []string{"dev", "proc", "sys"}, names(t, k, "/"))
}

// A GPU in the mode already is not touched, not even when it is busy.
func TestSameModeIsNoSwitch(t *testing.T) {
	k := machine(t, "mi300x8")
	require.NoError(t, switchTo(k, first, "CPX"))
	before := gpuNodes(t, k, "")
	require.NoError(t, StartProcess(k.root, Process{PID: 7, GPUs: []string{first}}))
	require.NoError(t, switchTo(k, first, "CPX"))
	assert.Equal(t, before, gpuNodes(t, k, ""))
}

func TestConfigSelectorSwitchesNothing(t *testing.T) {
	k := machine(t, "mi300x8")
	dir := of(first, "compute_partition_config")
	assert.Equal(t, "SPX, DPX, QPX, CPX", read(t, k, dir+"/supported_xcp_configs"))
	for mode, want := range map[string][]string{
		// memory modes, then instances and sharers of xcc, dma, dec, jpeg
		"SPX": {"NPS1", "8", "1", "16", "1", "4", "1", "32", "1"},
		"DPX": {"NPS1, NPS2", "4", "1", "8", "1", "2", "1", "16", "1"},
		"QPX": {"NPS1, NPS4", "2", "1", "4", "1", "1", "1", "8", "1"},
		"CPX": {"NPS1, NPS4", "1", "1", "2", "1", "1", "2", "8", "2"},
	} {
		require.NoError(t, k.WriteFile(dir+"/xcp_config", []byte(mode)))
		got := []string{read(t, k, dir+"/supported_nps_configs")}
		for _, kind := range []string{"xcc", "dma", "dec", "jpeg"} {
			got = append(got, read(t, k, dir+"/"+kind+"/num_inst"), read(t, k, dir+"/"+kind+"/num_shared"))
		}
		assert.Equal(t, want, got, mode)
		assert.Equal(t, mode, read(t, k, dir+"/xcp_config"))
	}
	assert.ErrorIs(t, k.WriteFile(dir+"/xcp_config", []byte("TPX")), unix.EINVAL)
	assert.Equal(t, "SPX", read(t, k, of(first, "current_compute_partition")))
	assert.Len(t, gpuNodes(t, k, first), 1)
}

func TestVirtualFunction(t *testing.T) {
	k := open(t, parsed(t, "gpus: [{model: MI300X, virtualFunction: true, computeMode: DPX, pci: ['0000:05:00.0']}]"), memory.TempDir(t))
	assert.Equal(t, "0x74b5", read(t, k, of(first, "device")))
	assert.Equal(t, "DPX", read(t, k, of(first, "current_compute_partition")))
	assert.ErrorIs(t, switchTo(k, first, "SPX"), unix.EACCES)
	for _, absent := range []string{"available_compute_partition", "available_memory_partition", "compute_partition_config"} {
		_, err := k.Stat(of(first, absent))
		assert.ErrorIs(t, err, fs.ErrNotExist, absent)
	}
	info, err := k.Stat(of(first, "current_compute_partition"))
	require.NoError(t, err)
	assert.Zero(t, info.Mode&0o222)
	require.NoError(t, ReloadDriver(k.root))
	assert.Len(t, gpuNodes(t, k, first), 2, "the hypervisor's choice stays")
}

func TestAPUHasOneMemoryMode(t *testing.T) {
	k := machine(t, "mi300a4")
	assert.ErrorIs(t, k.WriteFile(of("0000:01:00.0", "current_memory_partition"), []byte("NPS1")), unix.EACCES)
	_, err := k.Stat(of("0000:01:00.0", "available_memory_partition"))
	assert.ErrorIs(t, err, fs.ErrNotExist)
	require.NoError(t, switchTo(k, "0002:01:00.0", "CPX"))
	nodes := gpuNodes(t, k, "0002:01:00.0")
	require.Len(t, nodes, 6)
	for i, location := range values(nodes, "location_id") {
		assert.EqualValues(t, uint64(i)<<28|0x100, location, "the partition is in the upper bits")
	}
	assert.Len(t, gpuNodes(t, k, "0001:01:00.0"), 1)
}

func TestGPUThatCannotBeCut(t *testing.T) {
	k := open(t, parsed(t, "gpus: [{model: MI210, count: 2}]"), memory.TempDir(t))
	pci := k.inventory.AMD[0].PCI
	for _, absent := range []string{"current_compute_partition", "current_memory_partition", "compute_partition_config"} {
		_, err := k.Stat(of(pci, absent))
		assert.ErrorIs(t, err, fs.ErrNotExist, absent)
	}
	nodes := gpuNodes(t, k, "")
	assert.Equal(t, []uint64{128, 129}, values(nodes, "drm_render_minor"))
	assert.EqualValues(t, 65520<<20, nodes[0].memory)
	_, err := k.Stat("/sys/devices/platform")
	assert.ErrorIs(t, err, fs.ErrNotExist)
}

func TestUniqueIDOfBothEras(t *testing.T) {
	for name, want := range map[string]int{"mi300x8": 8, "mi325x8": 1} {
		k := machine(t, name)
		require.NoError(t, switchTo(k, first, "CPX"))
		ids := values(gpuNodes(t, k, first), "unique_id")
		slices.Sort(ids)
		assert.Len(t, slices.Compact(ids), want, name)
		require.NoError(t, switchTo(k, first, "SPX"))
		assert.Equal(t, read(t, k, of(first, "unique_id")), fmt.Sprintf("%016x", gpuNodes(t, k, first)[0].property["unique_id"]), name)
	}
}

// The board's own graphics leaves 63 numbers for 64 partitions.
func TestDisplayAdapter(t *testing.T) {
	k := machine(t, "mi325x8")
	for _, c := range k.inventory.AMD {
		require.NoError(t, switchTo(k, c.PCI, "CPX"))
	}
	nodes := gpuNodes(t, k, "")
	assert.Len(t, nodes, 63)
	assert.EqualValues(t, 190, slices.Max(values(nodes, "drm_render_minor")))
	assert.Len(t, names(t, k, "/sys/devices/platform"), 55)
	assert.Len(t, names(t, k, "/dev/dri"), 126, "63 cards and their render nodes")
	assert.Equal(t, []string{"card1", "renderD128"}, names(t, k, of(first, "drm")))
}

func TestBothVendors(t *testing.T) {
	k := machine(t, "h100x2-mi300x2")
	assert.Equal(t, []string{"0000:1b:00.0", "0000:26:00.0", "0000:9d:00.0", "0000:a6:00.0"}, names(t, k, "/sys/bus/pci/devices"))
	assert.Equal(t, "0x10de", read(t, k, of("0000:1b:00.0", "vendor")))
	assert.Equal(t, []string{"0000:26:00.0", "0000:a6:00.0", "module"}, names(t, k, "/sys/bus/pci/drivers/amdgpu"))
}

func TestDeviceNodes(t *testing.T) {
	k := machine(t, "mi300x8")
	if !k.HasDeviceNodes() {
		t.Skip("device nodes need root")
	}
	for name, minor := range map[string]uint32{"/dev/kfd": 0, "/dev/dri/card0": 0, "/dev/dri/card63": 63, "/dev/dri/renderD128": 128, "/dev/dri/renderD191": 191} {
		info, err := k.Stat(name)
		require.NoError(t, err)
		var st unix.Stat_t
		require.NoError(t, unix.Lstat(k.root+name, &st))
		assert.Equal(t, [2]uint32{unix.Major(st.Rdev), unix.Minor(st.Rdev)}, [2]uint32{info.Major, info.Minor}, name)
		assert.Equal(t, minor, info.Minor)
		assert.GreaterOrEqual(t, info.Major, uint32(512), "no driver can register it")
		group := RenderGID
		if strings.HasPrefix(name, "/dev/dri/card") {
			group = VideoGID
		}
		assert.EqualValues(t, group, info.GID)
		assert.Equal(t, info.GID, st.Gid)
		assert.Equal(t, fs.ModeDevice|fs.ModeCharDevice|0o660, info.Mode)
		_, err = os.Open(k.root + name)
		assert.ErrorIs(t, err, unix.ENXIO, "no driver behind it")
		_, err = k.ReadFile(name)
		assert.ErrorIs(t, err, unix.ENXIO)
	}
	kfd, _ := k.Stat("/dev/kfd")
	render, _ := k.Stat("/dev/dri/renderD128")
	assert.NotEqual(t, kfd.Major, render.Major)
}

// Reading all that a driver reads of 64 partitions is cheap.
func TestReadingIsCheap(t *testing.T) {
	k := machine(t, "mi300x8")
	for _, c := range k.inventory.AMD {
		require.NoError(t, switchTo(k, c.PCI, "CPX"))
	}
	best := time.Hour
	for range 5 {
		start := time.Now()
		require.Len(t, gpuNodes(t, k, ""), 64)
		best = min(best, time.Since(start))
	}
	t.Logf("64 nodes in %s", best)
	assert.Less(t, best, time.Second)
}
