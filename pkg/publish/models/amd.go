package models

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/pkg/hardware/xcp"
	"github.com/tranche-dev/tranche/pkg/lists"
)

// DRM of the kernels that AMD's driver is made for numbers 64 devices, from 128
// on; amdgpu takes a row of eight for each GPU that can be partitioned, whatever the
// number of its partitions (amdgpu_xcp.c, MAX_XCP; ROCm/k8s-device-plugin
// testdata/topology-parsing-mi308 shows the row of a GPU with four).
const (
	FirstRenderMinor = 128
	MaxRenderMinors  = 64
	MinorsPerGPU     = 8
)

// AMDGPU is one AMD GPU of an inventory.
type AMDGPU struct {
	Model *AMDModel
	// PCI is the address as sysfs spells it: 0000:c1:00.0.
	PCI string
	// ComputeMode and MemoryMode are those at every start of the machine, empty
	// for a GPU that cannot be partitioned.
	ComputeMode xcp.Mode
	MemoryMode  xcp.MemoryMode
	// VF is a virtual function: its modes are the hypervisor's.
	VF bool
	// NUMANode is -1 where the machine has none.
	NUMANode int
}

// AMDDriver is amdgpu and the kernel around it.
type AMDDriver struct {
	// Version is empty for the driver that comes with the kernel.
	Version string
	// BusyHost: no GPU switches while any process of the host uses KFD. Newer
	// drivers look at the processes of the GPU.
	BusyHost bool
	// XCPName comes between amdgpu_xcp and the number: "_" or ".".
	XCPName string
	// HighLocationBits: KFD's location_id has the partition in bits 31 to 28, and
	// not in the lowest three.
	HighLocationBits bool
	// UniquePerPartition: KFD's unique_id is the partition's, not the GPU's.
	UniquePerPartition bool
	// DisplayAdapter is a device beside the GPUs that takes a DRM number, as the
	// board's own graphics does (ast), so that of 64 partitions one is missing.
	DisplayAdapter bool
	Delays         AMDDelays
}

// AMDDelays are how long the hardware takes.
type AMDDelays struct {
	// SwitchMode is until the write of a compute mode returns.
	SwitchMode time.Duration
	// RenderNodes is from then on until the device nodes are in /dev.
	RenderNodes time.Duration
	// LoadDriver is until modprobe has loaded the driver, which resets the GPUs.
	LoadDriver time.Duration
}

// The driver of an inventory that says nothing about it.
var defaultAMDDriver = AMDDriver{
	Version: "6.16.13",
	XCPName: "_",
	Delays:  AMDDelays{SwitchMode: time.Second, RenderNodes: 100 * time.Millisecond, LoadDriver: 3 * time.Second},
}

// inKernel is the driver version of a driver that has none of its own.
const inKernel = "in-kernel"

type amdFile struct {
	DriverVersion  string                     `json:"driverVersion"`
	Busy           string                     `json:"busy"`
	XCPName        string                     `json:"xcpName"`
	LocationID     string                     `json:"locationID"`
	UniqueID       string                     `json:"uniqueID"`
	DisplayAdapter bool                       `json:"displayAdapter"`
	Delays         map[string]metav1.Duration `json:"delays"`
}

var amdVersion = regexp.MustCompile(`^\d+(\.\d+){1,3}$`)

func (f amdFile) resolve() (AMDDriver, error) {
	d := defaultAMDDriver
	if f.DriverVersion != "" && f.DriverVersion != inKernel && !amdVersion.MatchString(f.DriverVersion) {
		return d, fmt.Errorf("amd.driverVersion: %q is neither %s nor a version like %s (quoted)", f.DriverVersion, inKernel, d.Version)
	}
	if d.Version = cmp.Or(f.DriverVersion, d.Version); d.Version == inKernel {
		d.Version = ""
	}
	choose := func(key, value, usual, other string) (isOther bool, err error) {
		if value != "" && value != usual && value != other {
			return false, fmt.Errorf("amd.%s: %q is neither %q nor %q", key, value, usual, other)
		}
		return value == other, nil
	}
	var err error
	if d.BusyHost, err = choose("busy", f.Busy, "gpu", "host"); err != nil {
		return d, err
	}
	if _, err = choose("xcpName", f.XCPName, "_", "."); err != nil {
		return d, err
	}
	d.XCPName = cmp.Or(f.XCPName, d.XCPName)
	if d.HighLocationBits, err = choose("locationID", f.LocationID, "low", "high"); err != nil {
		return d, err
	}
	if d.UniquePerPartition, err = choose("uniqueID", f.UniqueID, "gpu", "partition"); err != nil {
		return d, err
	}
	d.DisplayAdapter = f.DisplayAdapter
	err = setDelays("amd.delays", f.Delays, map[string]*time.Duration{
		"switchMode": &d.Delays.SwitchMode, "renderNodes": &d.Delays.RenderNodes, "loadDriver": &d.Delays.LoadDriver,
	})
	return d, err
}

// resolveAMD checks what is said about GPUs of AMD's and adds what is not.
func (f gpuFile) resolveAMD(key string, model *AMDModel) (AMDGPU, error) {
	g := AMDGPU{Model: model, VF: f.VirtualFunction}
	if f.MIGMode != "" {
		return g, fmt.Errorf("%s.migMode: %s has no MIG", key, f.Model)
	}
	if !model.HasPartitions() {
		if mode := f.ComputeMode + f.MemoryMode; mode != "" {
			return g, fmt.Errorf("%s: %s cannot be partitioned and has no mode like %s; leave out computeMode and memoryMode", key, f.Model, mode)
		}
		return g, nil
	}
	g.MemoryMode = xcp.MemoryMode(cmp.Or(f.MemoryMode, string(model.MemoryModes[0])))
	if !slices.Contains(model.MemoryModes, g.MemoryMode) {
		return g, fmt.Errorf("%s.memoryMode: %s has no mode %q: choose one of %s", key, f.Model, f.MemoryMode, joined(model.MemoryModes))
	}
	g.ComputeMode = xcp.Mode(cmp.Or(f.ComputeMode, string(model.AutoMode(g.MemoryMode))))
	if legal := xcp.Legal(model.Chip(g.VF), g.MemoryMode); !slices.Contains(legal, g.ComputeMode) {
		return g, fmt.Errorf("%s.computeMode: %s has no mode %q under %s: choose one of %s", key, f.Model, g.ComputeMode, g.MemoryMode, joined(legal))
	}
	return g, nil
}

func joined[T ~string](all []T) string {
	return strings.Join(lists.Map(all, func(x T) string { return string(x) }), ", ")
}

// checkRenderMinors refuses more GPUs than DRM has numbers for.
func checkRenderMinors(gpus []AMDGPU) error {
	minors := 0
	for i := range gpus {
		minors += gpus[i].RenderMinors()
	}
	if minors > MaxRenderMinors {
		return fmt.Errorf("gpus: AMD's GPUs take %d DRM numbers, %d for each that can be partitioned; there are %d", minors, MinorsPerGPU, MaxRenderMinors)
	}
	return nil
}

// RenderMinors is how many DRM numbers the GPU takes.
func (c *AMDGPU) RenderMinors() int {
	if c.Model.HasPartitions() {
		return MinorsPerGPU
	}
	return 1
}

// RenderMinor is the number of the first render node of the GPU with an index.
func (inv *Inventory) RenderMinor(index int) int {
	minor := FirstRenderMinor
	for i := range inv.AMD[:index] {
		minor += inv.AMD[i].RenderMinors()
	}
	return minor
}
