package amdgpu

import (
	"fmt"
	"path"
	"strconv"
	"strings"

	"github.com/tranche-dev/tranche/pkg/hardware/xcp"
	"github.com/tranche-dev/tranche/pkg/publish/models"
)

const (
	kfdDir      = "/sys/devices/virtual/kfd/kfd"
	topologyDir = kfdDir + "/topology"
)

// topologyFiles are KFD's nodes: the processors first, then the GPUs.
func (v *view) topologyFiles(t *tree, nodes []node) {
	t.symlink("/sys/class/kfd/kfd", kfdDir)
	t.dir(kfdDir + "/proc")
	t.text(topologyDir+"/generation_id", strconv.Itoa(v.generation()))
	t.text(topologyDir+"/system_properties", "platform_oem 0\nplatform_id 0\nplatform_rev 0")
	processors := v.processors()
	for i := range processors {
		links := v.processorLinks(i, nodes)
		v.nodeDir(t, i, 0, "", processorProperties(i, len(links)), links)
	}
	for i, n := range nodes {
		links := v.gpuLinks(i, nodes)
		dir := v.nodeDir(t, processors+i, n.gpuID, "ip discovery", v.properties(n, len(links)), links)
		t.text(dir+"/mem_banks/0/properties", fmt.Sprintf("heap_type 1\nsize_in_bytes %d\nflags 0\nwidth 8192\nmem_clk_max %d",
			v.memory(n), v.model(n.gpu).ClocksMHz[1]))
	}
}

func (v *view) nodeDir(t *tree, number int, gpuID uint32, name, properties string, links []link) string {
	dir := path.Join(topologyDir, "nodes", strconv.Itoa(number))
	t.text(dir+"/gpu_id", strconv.Itoa(int(gpuID)))
	t.text(dir+"/name", name)
	t.text(dir+"/properties", properties)
	// The kernel makes these also if they are empty (kfd_build_sysfs_node_entry in kfd_topology.c).
	for _, folder := range []string{"mem_banks", "caches", "io_links", "p2p_links", "perf"} {
		t.dir(path.Join(dir, folder))
	}
	for i, l := range links {
		t.text(path.Join(dir, "io_links", strconv.Itoa(i), "properties"), lines("type", l.kind, "version_major", 0, "version_minor", 0,
			"node_from", number, "node_to", l.to, "weight", l.weight, "min_latency", 0, "max_latency", 0, "min_bandwidth", 0,
			"max_bandwidth", l.bandwidth, "recommended_transfer_size", 0, "recommended_sdma_engine_id_mask", l.engines, "flags", l.flags))
	}
	return dir
}

// link leads from a node to another. The numbers are those of a machine with eight MI300X in CPX
// (ROCm/k8s-device-plugin, testdata/topo-mi300-cpx).
type link struct {
	kind, to, weight, bandwidth, engines, flags int
}

const (
	linkOfProcessors = 1
	linkPCIe         = 2
	linkXGMI         = 11
)

// Weights of XGMI links (kfd_fill_gpu_xgmi_link_to_gpu in Linux' kfd_crat.c).
const (
	weightOfHop = 15
	weightInGPU = 13
)

// processorLinks are those of a processor: to the others, and to the GPUs beside it.
func (v *view) processorLinks(index int, nodes []node) (links []link) {
	for i := range v.processors() {
		if i != index {
			links = append(links, link{kind: linkOfProcessors, to: i, weight: 32})
		}
	}
	for i, n := range nodes {
		if v.processorOf(n) == index {
			links = append(links, link{kind: linkPCIe, to: v.processors() + i, weight: 20, bandwidth: 64000, engines: 3, flags: 3})
		}
	}
	return links
}

// gpuLinks are those of a GPU's node: to its processor, and to the other GPUs' nodes.
func (v *view) gpuLinks(index int, nodes []node) []link {
	links := []link{{kind: linkPCIe, to: v.processorOf(nodes[index]), weight: 20, bandwidth: 64000, engines: 3, flags: 1}}
	for i, n := range nodes {
		if i == index || v.hive(n.gpu) == 0 && n.gpu != nodes[index].gpu || v.hive(n.gpu) != v.hive(nodes[index].gpu) {
			continue
		}
		weight := weightOfHop
		switch {
		case n.gpu == nodes[index].gpu:
			weight = weightInGPU
		case v.partitions(nodes[index].gpu) > 1: // KFD does not ask for the hops then
			weight = 2*weightInGPU + weightOfHop
		}
		links = append(links, link{kind: linkXGMI, to: v.processors() + i, weight: weight, engines: 3, flags: 1})
	}
	return links
}

// hive is the number of a GPU's XGMI hive, zero if it is in none.
func (v *view) hive(gpuIndex int) uint64 { return v.inv.Hive(v.seed, gpuIndex) }

// hops is the number of hops to each GPU of the hive, first to the GPU itself (amdgpu_xgmi_show_num_hops in
// Linux' amdgpu_xgmi.c). Bit 6 says that the links are of the third generation.
func (v *view) hops(gpuIndex int) string {
	text := ""
	for i := range v.inv.AMD {
		switch {
		case i == gpuIndex:
			text += "00 "
		case v.hive(i) == v.hive(gpuIndex):
			text += "41 "
		}
	}
	return text
}

// processorOf is the processor beside a GPU.
func (v *view) processorOf(n node) int { return max(0, v.inv.AMD[n.gpu].NUMANode) }

// processors is how many the machine has: one for each NUMA node.
func (v *view) processors() int {
	n := 1
	for i := range v.inv.AMD {
		n = max(n, v.inv.AMD[i].NUMANode+1)
	}
	return n
}

func processorProperties(index, links int) string {
	const cores = 96
	return lines("cpu_cores_count", cores, "simd_count", 0, "mem_banks_count", 1, "io_links_count", links, "cpu_core_id_base", index*cores,
		"vendor_id", 0, "device_id", 0, "location_id", 0, "domain", 0, "drm_render_minor", 0, "unique_id", 0)
}

// memory is what KFD says that a partition has.
func (v *view) memory(n node) int64 {
	return xcp.MemoryOf(v.model(n.gpu).Memory(), v.modes(n.gpu).Memory, v.partitions(n.gpu))[n.partition]
}

// Numbers that all GPUs have in common (KFD nodes of MI300X and MI350X in
// ROCm/k8s-device-plugin's and rocprofiler-sdk's test data).
const (
	simdPerCU       = 4
	sdmaPerNode     = 2
	queuesPerSDMA   = 8
	computeQueues   = 24
	arraysPerXCC    = 4
	partitionShift  = 28 // of location_id, in drivers that have the partition there
	firmwareVersion = 177
)

// properties are those of a GPU's node.
func (v *view) properties(n node, links int) string {
	m, count := v.model(n.gpu), v.partitions(n.gpu)
	domain, bus, device := models.ParsePCI(v.pci(n.gpu))
	location := bus<<8 | device<<3
	if v.inv.AMDDriver.HighLocationBits {
		location |= uint32(n.partition) << partitionShift
	} else {
		location |= uint32(n.partition)
	}
	xccs := m.XCCs / count
	return lines("cpu_cores_count", 0, "simd_count", m.ComputeUnits/count*simdPerCU, "mem_banks_count", 1,
		"caches_count", 0, "io_links_count", links, "p2p_links_count", 0, "cpu_core_id_base", 0, "simd_id_base", 2147487744,
		"max_waves_per_simd", 8, "lds_size_in_kb", 64, "gds_size_in_kb", 0, "num_gws", 64, "wave_front_size", 64,
		"array_count", arraysPerXCC*xccs, "simd_arrays_per_engine", 1, "cu_per_simd_array", m.CUsPerArray, "simd_per_cu", simdPerCU,
		"max_slots_scratch_cu", 32, "gfx_target_version", m.GFXTargetVersion, "vendor_id", 4098,
		"device_id", m.PCIDevice(v.inv.AMD[n.gpu].VF), "location_id", location, "domain", domain,
		"drm_render_minor", v.inv.RenderMinor(n.gpu)+n.partition, "hive_id", v.hive(n.gpu),
		"num_sdma_engines", sdmaPerNode, "num_sdma_xgmi_engines", max(0, m.Engines[models.AMDEngineSDMA]/count-sdmaPerNode),
		"num_sdma_queues_per_engine", queuesPerSDMA, "num_cp_queues", computeQueues,
		"max_engine_clk_fcompute", m.ClocksMHz[0], "local_mem_size", 0, "fw_version", firmwareVersion, "capability", 2893521536,
		"debug_prop", 1511, "sdma_fw_version", 24, "unique_id", v.uniqueID(n.gpu, n.partition), "num_xcc", xccs,
		"max_engine_clk_ccompute", 3700)
}

// lines writes pairs of a name and a number.
func lines(pairs ...any) string {
	var b strings.Builder
	for i := 0; i < len(pairs); i += 2 {
		if i > 0 {
			b.WriteByte('\n')
		}
		_, _ = fmt.Fprintf(&b, "%v %v", pairs[i], pairs[i+1])
	}
	return b.String()
}
