package amdgpu

import (
	"cmp"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/tranche-dev/tranche/pkg/hardware/xcp"
	"github.com/tranche-dev/tranche/pkg/publish/models"
)

const (
	pciDevices  = "/sys/bus/pci/devices"
	driverDir   = "/sys/bus/pci/drivers/amdgpu"
	moduleDir   = "/sys/module/amdgpu"
	platformDir = "/sys/devices/platform"
)

// The files of a GPU that can be written to.
const (
	computeFile  = "current_compute_partition"
	memoryFile   = "current_memory_partition"
	selectorFile = "xcp_config"
)

// deviceDir is where a GPU sits: behind a root port of its root complex.
func deviceDir(pci string) string {
	root := models.PCIeRoot(pci)
	return path.Join("/sys/devices", root, strings.TrimPrefix(root, "pci")+":01.1", pci)
}

// configDir is where the driver describes the modes of a GPU.
func configDir(pci string) string { return deviceDir(pci) + "/compute_partition_config" }

// moduleFiles is what the loaded driver has beside the GPUs.
func (v *view) moduleFiles(t *tree) {
	t.text(moduleDir+"/initstate", "live")
	t.text(moduleDir+"/refcnt", strconv.Itoa(len(v.processes())+len(v.faults.Holders)))
	t.dir(moduleDir + "/holders")
	for _, name := range v.faults.Holders {
		t.symlink(path.Join(moduleDir, "holders", name), path.Join("/sys/module", name))
		t.dir(path.Join("/sys/module", name))
	}
	// A module with a version has this too (add_srcversion in Linux' modpost.c).
	t.text(moduleDir+"/srcversion", "0123456789ABCDEF0123456")
	if version := cmp.Or(v.st.Loaded, v.inv.AMDDriver.Version); version != "" {
		t.text(moduleDir+"/version", version)
	}
	t.dir(driverDir)
	t.symlink(driverDir+"/module", moduleDir)
	t.symlink(moduleDir+"/drivers/pci:amdgpu", driverDir)
}

// pciFiles is as much of a GPU as the bus shows of it, with a driver or without.
func (v *view) pciFiles(t *tree, gpuIndex int) {
	if v.lost(gpuIndex) {
		return
	}
	c := &v.inv.AMD[gpuIndex]
	dir := deviceDir(c.PCI)
	t.symlink(path.Join(pciDevices, c.PCI), dir)
	for name, content := range map[string]string{
		"vendor":           "0x1002",
		"device":           fmt.Sprintf("0x%04x", c.Model.PCIDevice(c.VF)),
		"subsystem_vendor": "0x1002",
		"subsystem_device": fmt.Sprintf("0x%04x", c.Model.PCIDevice(c.VF)),
		"class":            "0x120000", // processing accelerator
		"numa_node":        strconv.Itoa(c.NUMANode),
	} {
		t.text(path.Join(dir, name), content)
	}
}

// gpuFiles is the sysfs of a GPU that the driver has.
func (v *view) gpuFiles(t *tree, gpuIndex int) {
	c := &v.inv.AMD[gpuIndex]
	dir := deviceDir(c.PCI)
	t.symlink(path.Join(driverDir, c.PCI), dir)
	for name, content := range map[string]string{
		"unique_id":           fmt.Sprintf("%016x", v.inv.UniqueID(v.seed, gpuIndex)),
		"product_name":        c.Model.ProductName,
		"vbios_version":       "113-SIMULATED-001",
		"mem_info_vram_total": strconv.FormatInt(c.Model.Memory(), 10),
		"mem_info_vram_used":  strconv.FormatUint(v.memoryUsed(gpuIndex), 10),
		"gpu_busy_percent":    strconv.Itoa(v.busyPercent(gpuIndex)),
		"mem_busy_percent":    strconv.Itoa(v.busyPercent(gpuIndex) / 2),
		"hwmon/hwmon3/name":   "amdgpu",
		// MI300 has no power1_average (amdgpu_pm.c, hwmon_attributes_visible).
		"hwmon/hwmon3/power1_input": strconv.Itoa(1000000 * c.Model.PowerWatts * (10 + v.busyPercent(gpuIndex)*9/10) / 100),
	} {
		t.text(path.Join(dir, name), content)
	}
	for name, content := range sensors(c.Model) {
		t.text(path.Join(dir, "hwmon/hwmon3", name), content)
	}
	if v.hive(gpuIndex) != 0 {
		t.text(dir+"/xgmi_num_hops", v.hops(gpuIndex))
	}
	t.symlink(dir+"/driver", driverDir)
	v.rasFiles(t, gpuIndex, dir)
	if !c.Model.HasPartitions() {
		return
	}
	v.modeFiles(t, gpuIndex, dir)
	if !c.VF {
		v.configFiles(t, gpuIndex, configDir(c.PCI))
	}
}

// firstWithoutVoltage is the first LLVM target (gfx942) whose GPUs tell no voltage (amdgpu_pm.c,
// hwmon_attributes_visible).
const firstWithoutVoltage = 90402

// sensors are the files of the GPU's sensors beside its power, in thousandths.
func sensors(m *models.AMDModel) map[string]string {
	files := map[string]string{
		"temp2_label": "junction", "temp2_input": "42000", "temp2_crit": "100000",
		"temp3_label": "mem", "temp3_input": "38000", "temp3_crit": "105000",
		"power1_label": "PPT", "power1_cap": strconv.Itoa(1000000 * m.PowerWatts), "power1_cap_max": strconv.Itoa(1000000 * m.PowerWatts),
		"freq1_label": "sclk", "freq1_input": strconv.Itoa(1000000 * m.ClocksMHz[0]),
		"freq2_label": "mclk", "freq2_input": strconv.Itoa(1000000 * m.ClocksMHz[1]),
	}
	if m.GFXTargetVersion < firstWithoutVoltage {
		files["in0_label"], files["in0_input"] = "vddgfx", "750"
	}
	return files
}

// modeFiles are those with the modes. A virtual function cannot be switched
// (aqua_vanjaram_xcp_mgr_init in Linux' aqua_vanjaram.c takes the function out),
// and a memory mode cannot be asked for where there is one only.
func (v *view) modeFiles(t *tree, gpuIndex int, dir string) {
	now, model, vf := v.modes(gpuIndex), v.model(gpuIndex), v.inv.AMD[gpuIndex].VF
	compute := t.text(path.Join(dir, computeFile), string(now.Compute))
	memory := t.text(path.Join(dir, memoryFile), string(now.Memory))
	compute.gpu, memory.gpu = gpuIndex, gpuIndex
	if v.resetting(gpuIndex) {
		compute.err, memory.err = unix.EPERM, unix.EPERM
	}
	if vf {
		return
	}
	compute.mode = 0o644
	t.text(dir+"/available_compute_partition", list(v.legal(gpuIndex)))
	if len(model.MemoryModes) > 1 {
		memory.mode = 0o644
		t.text(dir+"/available_memory_partition", list(model.MemoryModes))
	}
}

func list[T ~string](words []T) string {
	texts := make([]string, len(words))
	for i, w := range words {
		texts[i] = string(w)
	}
	return strings.Join(texts, ", ")
}

// configFiles describe the mode that was written to xcp_config, which switches
// nothing (amdgpu_xcp_cfg_sysfs_init in Linux' amdgpu_xcp.c).
func (v *view) configFiles(t *tree, gpuIndex int, dir string) {
	model, selected := v.model(gpuIndex), v.st.GPUs[gpuIndex].Selected
	t.text(dir+"/supported_xcp_configs", list(model.Modes()))
	var memory []xcp.MemoryMode
	for _, m := range model.MemoryModes {
		for _, mode := range xcp.Legal(model.Chip(false), m) {
			if mode == selected {
				memory = append(memory, m)
			}
		}
	}
	supported := list(memory)
	if len(memory) == 0 {
		supported = "Not supported"
	}
	t.text(dir+"/supported_nps_configs", supported)
	selector := t.text(path.Join(dir, selectorFile), string(selected))
	selector.mode, selector.gpu = 0o644, gpuIndex
	for kind, r := range model.Resources(selected) {
		t.text(path.Join(dir, kind, "num_inst"), strconv.Itoa(r.Instances)).mode = 0o400
		t.text(path.Join(dir, kind, "num_shared"), strconv.Itoa(r.SharedBy)).mode = 0o400
	}
}

// memoryUsed is what programs have of the GPU's memory.
func (v *view) memoryUsed(gpuIndex int) (used uint64) {
	v.eachUse(gpuIndex, func(p Process) { used += p.Memory() })
	return min(used, uint64(v.model(gpuIndex).Memory()))
}

// busyPercent is how many percent of the compute units of the GPU are busy.
func (v *view) busyPercent(gpuIndex int) int {
	sum := 0
	v.eachUse(gpuIndex, func(p Process) { sum += p.Compute })
	return min(100, sum/v.partitions(gpuIndex))
}

// eachUse is called for each partition of the GPU that a process uses.
func (v *view) eachUse(gpuIndex int, f func(Process)) {
	processes := v.processes()
	if len(processes) == 0 {
		return
	}
	for _, n := range v.nodes() {
		for _, p := range processes {
			if n.gpu == gpuIndex && p.uses(n, v.pci(gpuIndex)) {
				f(p)
			}
		}
	}
}

// rasBlocks are the parts of a chip that count errors.
var rasBlocks = []string{"umc", "gfx", "sdma", "mmhub", "xgmi_wafl", "pcie_bif"}

// rasFiles are the counts of memory errors and others (amdgpu_ras_sysfs_read in
// Linux' amdgpu_ras.c).
func (v *view) rasFiles(t *tree, gpuIndex int, dir string) {
	for _, block := range rasBlocks {
		uncorrectable, correctable := 0, 0
		for _, r := range v.faults.RAS {
			if r.GPU == v.pci(gpuIndex) && r.block() == block {
				uncorrectable += r.Uncorrectable
				correctable += r.Correctable
			}
		}
		text := fmt.Sprintf("ue: %d\nce: %d", uncorrectable, correctable)
		if block == "umc" {
			text += "\nde: 0"
		}
		t.text(path.Join(dir, "ras", block+"_err_count"), text)
	}
}

// nodeFiles are the DRM devices of a GPU: its own, which are its first
// partition's, and one of platform for each other partition that it can have,
// whatever its mode is.
func (v *view) nodeFiles(t *tree, gpuIndex int) {
	first := v.inv.RenderMinor(gpuIndex)
	v.drmFiles(t, gpuIndex, 0, deviceDir(v.pci(gpuIndex)))
	for partition := 1; partition < v.inv.AMD[gpuIndex].RenderMinors(); partition++ {
		if v.hasMinor(gpuIndex, partition) {
			// Numbers count on over all GPUs; the first partition of each has none.
			number := first - models.FirstRenderMinor - gpuIndex + partition - 1
			v.drmFiles(t, gpuIndex, partition, path.Join(platformDir, "amdgpu_xcp"+v.inv.AMDDriver.XCPName+strconv.Itoa(number)))
		}
	}
}

func (v *view) drmFiles(t *tree, gpuIndex, partition int, dir string) {
	minor := v.inv.RenderMinor(gpuIndex) + partition
	primary := v.primaryMinor(minor)
	card, render := "card"+strconv.Itoa(primary), "renderD"+strconv.Itoa(minor)
	for _, name := range []string{card, render} {
		t.dir(path.Join(dir, "drm", name))
		t.symlink(path.Join(dir, "drm", name, "device"), dir)
		t.symlink(path.Join("/sys/class/drm", name), path.Join(dir, "drm", name))
	}
	t.add("/dev/dri/"+card, v.device(v.st.DRMMajor, primary)).gid = VideoGID
	pci := v.pci(gpuIndex)
	if v.faults.missing(missingRender, pci, partition) {
		return
	}
	f := t.add("/dev/dri/"+render, v.device(v.st.DRMMajor, minor))
	if from := v.st.GPUs[gpuIndex].NodesFrom; !from.IsZero() && partition > 0 && partition < v.partitions(gpuIndex) {
		f.from = from.Add(v.faults.late(pci, partition))
	}
}

// primaryMinor is the number of the card that has a render node.
func (v *view) primaryMinor(renderMinor int) int {
	minor := renderMinor - models.FirstRenderMinor
	if v.inv.AMDDriver.DisplayAdapter {
		minor++
	}
	return minor
}

// device is a device node as udev makes it for amdgpu.
func (v *view) device(major, minor int) *file {
	return &file{mode: fs.ModeDevice | fs.ModeCharDevice | nodeMode, major: uint32(major), minor: uint32(minor), gid: RenderGID}
}

// otherGPUFiles is as much of a GPU of NVIDIA's as everybody sees on the bus.
func (v *view) otherGPUFiles(t *tree, g *models.GPU) {
	dir := deviceDir(g.PCI)
	t.symlink(path.Join(pciDevices, g.PCI), dir)
	t.text(dir+"/vendor", "0x10de")
	t.text(dir+"/device", fmt.Sprintf("0x%04x", g.Model.DeviceID()>>16))
	t.text(dir+"/class", "0x030200")
	t.text(dir+"/numa_node", strconv.Itoa(g.NUMANode))
}
