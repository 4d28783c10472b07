package nvdriver

import (
	"slices"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/tranche-dev/tranche/pkg/hardware/mig"
	"github.com/tranche-dev/tranche/pkg/publish/models"
	"github.com/tranche-dev/tranche/test/simulator/nvstate"
)

// device is the handle of a GPU.
type device struct {
	nvml.Device

	nv    *NVML
	index int
	uuid  string
}

func newDevice(n *NVML, index int) *device {
	return &device{
		Device: missingDevice, nv: n, index: index,
		uuid: n.inventory.GPUUUID(n.seed, index),
	}
}

func (d *device) gpu() *models.GPU { return &d.nv.inventory.GPUs[d.index] }

// view begins a reading call: library loaded, GPU on the bus, no fault set.
func (d *device) view(call string) (*nvstate.GPU, nvml.Return) {
	if ret := d.reachable(); ret != nvml.SUCCESS {
		return nil, ret
	}
	if ret := d.nv.inject(call, d.gpu().PCI); ret != nvml.SUCCESS {
		return nil, ret
	}
	st, err := d.nv.store.Read()
	if err == nil && st == nil {
		err = nvstate.ErrNone(d.nv.root)
	}
	if err != nil {
		return nil, d.nv.unexpected(call, err)
	}
	g, ok := st.GPU(d.gpu().PCI)
	if !ok {
		// Another process opened the machine with other GPUs.
		return nil, nvml.ERROR_GPU_IS_LOST
	}
	return g, nvml.SUCCESS
}

func (d *device) reachable() nvml.Return {
	if ret := d.nv.initialized(); ret != nvml.SUCCESS {
		return ret
	}
	if faults, _ := d.nv.faults.Read(); slices.Contains(faults.Lost, d.gpu().PCI) {
		return nvml.ERROR_GPU_IS_LOST
	}
	return nvml.SUCCESS
}

// check is view for calls that answer what never changes.
func (d *device) check(call string) nvml.Return {
	if ret := d.reachable(); ret != nvml.SUCCESS {
		return ret
	}
	return d.nv.inject(call, d.gpu().PCI)
}

// GetName returns the product name.
func (d *device) GetName() (string, nvml.Return) {
	return d.gpu().Model.ProductName, d.check("GetName")
}

// GetUUID returns "GPU-…".
func (d *device) GetUUID() (string, nvml.Return) { return d.uuid, d.check("GetUUID") }

// GetIndex returns the GPU's place in PCI order.
func (d *device) GetIndex() (int, nvml.Return) { return d.index, d.check("") }

// GetMinorNumber returns N of /dev/nvidiaN. It equals the index here; on real
// machines nothing promises that.
func (d *device) GetMinorNumber() (int, nvml.Return) { return d.index, d.check("GetMinorNumber") }

// GetPciInfo returns the address in NVML's two spellings.
func (d *device) GetPciInfo() (nvml.PciInfo, nvml.Return) { return d.pciInfo(), d.check("GetPciInfo") }

func (d *device) pciInfo() nvml.PciInfo {
	addr := d.gpu().PCI
	domain, bus, dev := models.ParsePCI(addr)
	info := nvml.PciInfo{Domain: domain, Bus: bus, Device: dev, PciDeviceId: d.gpu().Model.DeviceID()}
	setString(info.BusId[:], nvmlBusID(addr))
	setString(info.BusIdLegacy[:], nvmlBusID(addr)[4:])
	return info
}

func setString(dst []int8, s string) {
	for i := 0; i < len(s) && i < len(dst)-1; i++ {
		dst[i] = int8(s[i])
	}
}

// GetMemoryInfo counts what the driver reserves as used, as version 1 does.
func (d *device) GetMemoryInfo() (nvml.Memory, nvml.Return) {
	v2, ret := d.GetMemoryInfo_v2()
	return nvml.Memory{Total: v2.Total, Free: v2.Free, Used: v2.Reserved + v2.Used}, ret
}

// GetMemoryInfo_v2 counts what the driver reserves apart. Both versions are NOT_SUPPORTED on a GPU
// that shares the memory of the host (GB10: XuehaiPan/nvitop#208).
func (d *device) GetMemoryInfo_v2() (nvml.Memory_v2, nvml.Return) {
	total, reserved := d.gpu().Model.Memory()
	if ret := d.check("GetMemoryInfo"); ret != nvml.SUCCESS {
		return nvml.Memory_v2{}, ret
	}
	if total == 0 {
		return nvml.Memory_v2{}, nvml.ERROR_NOT_SUPPORTED
	}
	used, err := d.memoryUsed()
	if err != nil {
		return nvml.Memory_v2{}, d.nv.unexpected("GetMemoryInfo", err)
	}
	used = min(used, total-reserved)
	info := nvml.Memory_v2{Total: total, Reserved: reserved, Used: used, Free: total - reserved - used}
	info.Version = nvml.STRUCT_VERSION(info, 2)
	return info, nvml.SUCCESS
}

// GetArchitecture returns NVML's number for Ampere, Hopper, …, also of a lost GPU:
// nvml.h documents no error for that.
func (d *device) GetArchitecture() (nvml.DeviceArchitecture, nvml.Return) {
	return architecture(d.gpu().Model), d.nv.initialized()
}

// architecture translates to NVML's number.
func architecture(m *models.NVIDIAModel) nvml.DeviceArchitecture {
	switch m.Architecture {
	case "Volta":
		return nvml.DEVICE_ARCH_VOLTA
	case "Turing":
		return nvml.DEVICE_ARCH_TURING
	case "Ampere":
		return nvml.DEVICE_ARCH_AMPERE
	case "Ada Lovelace":
		return nvml.DEVICE_ARCH_ADA
	case "Hopper":
		return nvml.DEVICE_ARCH_HOPPER
	case "Blackwell":
		return nvml.DEVICE_ARCH_BLACKWELL
	}
	return nvml.DEVICE_ARCH_UNKNOWN
}

// GetBrand is NVIDIA for datacenter GPUs since Ampere, as nvidia-smi -q
// prints "Product Brand: NVIDIA".
func (d *device) GetBrand() (nvml.BrandType, nvml.Return) {
	return nvml.BRAND_NVIDIA, d.check("")
}

// GetCudaComputeCapability returns major and minor.
func (d *device) GetCudaComputeCapability() (int, int, nvml.Return) {
	major, minor := d.gpu().Model.ComputeCapability()
	return major, minor, d.check("GetCudaComputeCapability")
}

// GetNumGpuCores counts CUDA cores.
func (d *device) GetNumGpuCores() (int, nvml.Return) {
	m := d.gpu().Model
	return m.Multiprocessors * mig.CoresPerMultiprocessor(m.ComputeCapability()), d.check("GetNumGpuCores")
}

// GetNumaNodeId is answered NOT_SUPPORTED on GPUs that are not coherent with
// the CPU's memory: it is the node of the GPU's own memory. The node that the
// GPU hangs on is in sysfs.
func (d *device) GetNumaNodeId() (int, nvml.Return) {
	if ret := d.check(""); ret != nvml.SUCCESS {
		return 0, ret
	}
	return 0, nvml.ERROR_NOT_SUPPORTED
}

// GetTopologyCommonAncestor says how far two GPUs are from each other. Those of one root complex hang
// on the same port here, which is that of a switch.
func (d *device) GetTopologyCommonAncestor(other nvml.Device) (nvml.GpuTopologyLevel, nvml.Return) {
	if ret := d.check("GetTopologyCommonAncestor"); ret != nvml.SUCCESS {
		return 0, ret
	}
	second, ok := other.(*device)
	if !ok {
		return 0, nvml.ERROR_INVALID_ARGUMENT
	}
	switch one, two := d.gpu(), second.gpu(); {
	case one.PCI == two.PCI:
		return nvml.TOPOLOGY_INTERNAL, nvml.SUCCESS
	case models.PCIeRoot(one.PCI) == models.PCIeRoot(two.PCI):
		return nvml.TOPOLOGY_SINGLE, nvml.SUCCESS
	case one.NUMANode == two.NUMANode:
		return nvml.TOPOLOGY_NODE, nvml.SUCCESS
	}
	return nvml.TOPOLOGY_SYSTEM, nvml.SUCCESS
}

// GetVirtualizationMode is bare metal.
func (d *device) GetVirtualizationMode() (nvml.GpuVirtualizationMode, nvml.Return) {
	return nvml.GPU_VIRTUALIZATION_MODE_NONE, d.check("GetVirtualizationMode")
}

// GetComputeMode says who may open contexts: Default until SetComputeMode. "If MIG
// is enabled on a GPU, device must be MIG device handle" (nvml.h).
func (d *device) GetComputeMode() (nvml.ComputeMode, nvml.Return) {
	g, ret := d.view("GetComputeMode")
	if ret != nvml.SUCCESS {
		return 0, ret
	}
	if g.MIGMode {
		return 0, nvml.ERROR_NOT_SUPPORTED
	}
	return nvml.ComputeMode(g.ComputeMode), nvml.SUCCESS
}

// SetComputeMode lasts until the driver is reloaded. "If MIG is enabled on
// a GPU, device must be MIG device handle" (nvml.h).
func (d *device) SetComputeMode(mode nvml.ComputeMode) nvml.Return {
	if mode < nvml.COMPUTEMODE_DEFAULT || mode >= nvml.COMPUTEMODE_COUNT {
		return nvml.ERROR_INVALID_ARGUMENT
	}
	return d.change("SetComputeMode", 0, func(_ *nvstate.State, g *nvstate.GPU) nvml.Return {
		if g.MIGMode || mode == nvml.COMPUTEMODE_EXCLUSIVE_THREAD {
			return nvml.ERROR_NOT_SUPPORTED
		}
		g.ComputeMode = int(mode)
		return nvml.SUCCESS
	})
}

// GetAddressingMode says that the GPU does not share page tables with the CPU.
func (d *device) GetAddressingMode() (nvml.DeviceAddressingMode, nvml.Return) {
	return nvml.DeviceAddressingMode{Value: uint32(nvml.DEVICE_ADDRESSING_MODE_NONE)}, d.check("")
}

// GetPersistenceMode is on, as on the H100 that was read.
func (d *device) GetPersistenceMode() (nvml.EnableState, nvml.Return) {
	return nvml.FEATURE_ENABLED, d.check("")
}

// GetRemappedRows: no row of memory was ever replaced.
func (d *device) GetRemappedRows() (corrected, uncorrected int, pending, failed bool, ret nvml.Return) {
	return 0, 0, false, false, d.check("")
}

// GetAttributes "currently only supports MIG device handles" (nvml.h).
func (d *device) GetAttributes() (nvml.DeviceAttributes, nvml.Return) {
	if ret := d.check(""); ret != nvml.SUCCESS {
		return nvml.DeviceAttributes{}, ret
	}
	return nvml.DeviceAttributes{}, nvml.ERROR_NOT_SUPPORTED
}

// IsMigDeviceHandle is false: this is a GPU.
func (d *device) IsMigDeviceHandle() (bool, nvml.Return) { return false, d.check("") }

// GetGpuInstanceId is a question to a MIG device.
func (d *device) GetGpuInstanceId() (int, nvml.Return) { return 0, nvml.ERROR_INVALID_ARGUMENT }

// GetComputeInstanceId is a question to a MIG device.
func (d *device) GetComputeInstanceId() (int, nvml.Return) { return 0, nvml.ERROR_INVALID_ARGUMENT }

// GetDeviceHandleFromMigDeviceHandle is a question to a MIG device.
func (d *device) GetDeviceHandleFromMigDeviceHandle() (nvml.Device, nvml.Return) {
	return nil, nvml.ERROR_NOT_SUPPORTED
}

// nvmlBusID is the address as NVML prints it: eight digits of domain, capitals.
func nvmlBusID(addr string) string { return "0000" + strings.ToUpper(addr) }

// sysfsBusID turns any spelling that NVML accepts (four or eight digits of
// domain, either case) into sysfs's.
func sysfsBusID(id string) string {
	id = strings.ToLower(id)
	if len(id) == len("00000000:1b:00.0") && strings.HasPrefix(id, "0000") {
		id = id[4:]
	}
	return id
}
