package sysfs

import (
	"strconv"
	"strings"
)

// The driver and its module.
const (
	ModuleDir = "/sys/module/amdgpu"
	BootID    = "/proc/sys/kernel/random/boot_id"
)

// DriverDirs are the folders that have the GPUs of amdgpu by their PCI
// addresses, the first that is there.
var DriverDirs = []string{"/sys/bus/pci/drivers/amdgpu", ModuleDir + "/drivers/pci:amdgpu"}

// DevicesDir has a folder for each GPU, by its PCI address.
const DevicesDir = "/sys/bus/pci/devices"

// The files of amdgpu about partitions (Linux' amdgpu_gfx.c, amdgpu_gmc.c and
// amdgpu_xcp.c).
const (
	ComputeFile          = "current_compute_partition"
	AvailableComputeFile = "available_compute_partition"
	MemoryFile           = "current_memory_partition"
	AvailableMemoryFile  = "available_memory_partition"
	DeviceFile           = "device"
	VRAMTotalFile        = "mem_info_vram_total"
)

// PlatformDir has a device for each partition but the first of each GPU, as many
// as the finest mode has, whatever the mode is now.
const PlatformDir = "/sys/devices/platform"

// The files of KFD, the compute part of the driver.
const (
	KFDDir      = "/sys/class/kfd/kfd"
	TopologyDir = KFDDir + "/topology"
	NodesDir    = TopologyDir + "/nodes"
	ProcessDir  = KFDDir + "/proc"
)

const (
	// KFDDevice is the one way into KFD for all GPUs; which of them a process sees
	// there is decided by the render nodes that it may open.
	KFDDevice = "/dev/kfd"
	// RenderDir has the render nodes of all GPUs.
	RenderDir = "/dev/dri"
)

const (
	// ConfigDir describes one mode at a time, the one that is written to
	// xcp_config. Writing it switches nothing (Linux' amdgpu_xcp.c, "AMDGPU XCP
	// sysfs").
	ConfigDir = "compute_partition_config"
	// SelectorFile takes the mode to be described.
	SelectorFile = ConfigDir + "/xcp_config"
	// ConfigModes lists the compute modes that the GPU supports.
	ConfigModes = ConfigDir + "/supported_xcp_configs"
	// ConfigMemory lists the memory modes that go with the described mode.
	ConfigMemory = ConfigDir + "/supported_nps_configs"
)

const (
	// RefcntFile counts who keeps the module in the kernel: opened device nodes and
	// other modules.
	RefcntFile = ModuleDir + "/refcnt"
	// HoldersDir names the modules that use amdgpu.
	HoldersDir = ModuleDir + "/holders"
)

// RenderMinor is the number in "renderD128".
func RenderMinor(name string) (int, bool) {
	digits, ok := strings.CutPrefix(name, "renderD")
	minor, err := strconv.Atoi(digits)
	return minor, ok && err == nil && minor >= 0
}

// RenderName is the name of a render node.
func RenderName(minor int) string { return "renderD" + strconv.Itoa(minor) }
