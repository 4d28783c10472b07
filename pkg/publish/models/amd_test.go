package models

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware/xcp"
)

func TestAMDTableIsConsistent(t *testing.T) {
	require.Equal(t, []string{"MI210", "MI300A", "MI300X", "MI308X", "MI325X", "MI350P", "MI350X", "MI355X"}, AMDModels())
	ids := map[uint32]string{}
	for _, key := range AMDModels() {
		m, _ := AMDModelByKey(key)
		assert.NotEmpty(t, m.Sources, key)
		for _, s := range m.Sources {
			assert.Contains(t, loadAMDTable().Sources, s, key)
		}
		for _, id := range []uint32{m.PCIDevice(false), m.PCIDevice(true)} {
			assert.NotZero(t, id, key)
			assert.Empty(t, ids[id], "%s has the id of another GPU", key)
			ids[id] = key
		}
		assert.Zero(t, m.ComputeUnits%m.XCCs, key)
		assert.NotZero(t, m.MemoryMiB, key)
		assert.NotZero(t, m.PowerWatts, key)
		_, both := NVIDIAModelByKey(key)
		assert.False(t, both, "%s names one GPU", key)
		for _, memory := range m.MemoryModes {
			assert.Contains(t, xcp.Legal(m.Chip(false), memory), m.AutoMode(memory), "%s comes up under %s", key, memory)
		}
	}
}

func TestAMDModels(t *testing.T) {
	for key, want := range map[string]struct {
		architecture string
		modes        []xcp.Mode
	}{
		"MI210":  {"gfx90a", nil},
		"MI300X": {"gfx942", []xcp.Mode{xcp.SPX, xcp.DPX, xcp.QPX, xcp.CPX}},
		"MI300A": {"gfx942", []xcp.Mode{xcp.SPX, xcp.TPX, xcp.CPX}},
		"MI308X": {"gfx942", []xcp.Mode{xcp.SPX, xcp.DPX, xcp.CPX}},
		"MI350P": {"gfx950", []xcp.Mode{xcp.SPX, xcp.DPX, xcp.CPX}},
		"MI355X": {"gfx950", []xcp.Mode{xcp.SPX, xcp.DPX, xcp.QPX, xcp.CPX}},
	} {
		m, ok := AMDModelByKey(key)
		require.True(t, ok, key)
		assert.Equal(t, want.architecture, m.Architecture(), key)
		assert.Equal(t, want.modes, m.Modes(), key)
		assert.Equal(t, len(want.modes) > 0, m.HasPartitions(), key)
	}
	m, _ := AMDModelByKey("MI300X")
	assert.Equal(t, map[string]AMDResource{"xcc": {1, 1}, "dma": {2, 1}, "dec": {1, 2}, "jpeg": {8, 2}}, m.Resources(xcp.CPX))
}

func TestBuiltInAMDInventories(t *testing.T) {
	for name, want := range map[string]struct {
		model   string
		gpus    int
		compute xcp.Mode
		memory  xcp.MemoryMode
		finest  int // partitions of the finest mode
		driver  AMDDriver
	}{
		"mi300x8":        {"MI300X", 8, xcp.SPX, xcp.NPS1, 8, AMDDriver{Version: "6.16.13", XCPName: "_", UniquePerPartition: true}},
		"mi300a4":        {"MI300A", 4, xcp.SPX, xcp.NPS1, 6, AMDDriver{Version: "6.14.14", XCPName: "_", HighLocationBits: true}},
		"mi308x8":        {"MI308X", 8, xcp.CPX, xcp.NPS4, 4, AMDDriver{Version: "6.12.12", XCPName: ".", BusyHost: true}},
		"mi325x8":        {"MI325X", 8, xcp.SPX, xcp.NPS1, 8, AMDDriver{Version: "6.14.14", XCPName: "_", DisplayAdapter: true}},
		"mi350x8":        {"MI350X", 8, xcp.DPX, xcp.NPS2, 8, AMDDriver{XCPName: "_", UniquePerPartition: true}},
		"mi355x8":        {"MI355X", 8, xcp.SPX, xcp.NPS1, 8, AMDDriver{Version: "6.19.14.31400000", XCPName: "_", UniquePerPartition: true}},
		"h100x2-mi300x2": {"MI300X", 2, xcp.SPX, xcp.NPS1, 8, AMDDriver{Version: "6.16.13", XCPName: "_", UniquePerPartition: true}},
	} {
		inv, err := LoadInventory(name)
		require.NoError(t, err)
		want.driver.Delays = defaultAMDDriver.Delays
		assert.Equal(t, want.driver, inv.AMDDriver, name)
		require.Len(t, inv.AMD, want.gpus, name)
		for i, c := range inv.AMD {
			assert.Equal(t, want.model, c.Model.Key, name)
			assert.Equal(t, want.compute, c.ComputeMode, name)
			assert.Equal(t, want.memory, c.MemoryMode, name)
			assert.Equal(t, want.finest, xcp.CPX.Count(c.Model.XCCs), name)
			if i > 0 {
				assert.Less(t, inv.AMD[i-1].PCI, c.PCI, "PCI order is index order")
			}
		}
	}
}

func TestGPUsOfBothVendors(t *testing.T) {
	inv, err := LoadInventory("h100x2-mi300x2")
	require.NoError(t, err)
	require.Len(t, inv.GPUs, 2)
	gpus := inv.Hardware("node-a")
	var order []string
	for _, g := range gpus {
		order = append(order, g.PCIAddress+" "+string(g.Vendor))
	}
	assert.Equal(t, []string{"0000:1b:00.0 nvidia", "0000:26:00.0 amd", "0000:9d:00.0 nvidia", "0000:a6:00.0 amd"}, order)

	second := gpus[3]
	assert.Equal(t, 1, second.Index, "among AMD's GPUs")
	assert.Equal(t, 1, gpus[2].Index, "among NVIDIA's GPUs")
	assert.Equal(t, 136, second.Minor)
	assert.Regexp(t, "^GPU-[0-9a-f]{16}$", second.UUID)
	assert.NotEqual(t, gpus[1].UUID, second.UUID)
	assert.NotEqual(t, inv.Hardware("node-b")[3].UUID, second.UUID)
	assert.Equal(t, "gfx942", second.Architecture)
	assert.Equal(t, "NPS1", second.MemoryMode)
	assert.Equal(t, "pci0000:a0", second.PCIeRoot)
	assert.EqualValues(t, 1, *second.NUMANode)
	assert.EqualValues(t, 196592<<20, second.Memory)
	require.Len(t, second.Placements, 8+4+2+1)
	assert.Equal(t, "gpu-0000-a6-00-0-cpx-0", second.Placements[0].Name())
	assert.EqualValues(t, 38, second.Placements[0].ComputeUnits)
}

func TestGPUsWithoutModes(t *testing.T) {
	inv, err := ParseInventory([]byte("gpus: [{model: MI210, count: 2}, {model: MI300X}, {model: MI300X, virtualFunction: true, computeMode: DPX}]"))
	require.NoError(t, err)
	gpus := inv.Hardware("node-a")
	minors := map[int]bool{}
	for _, g := range gpus {
		minors[g.Minor] = true
	}
	assert.Equal(t, map[int]bool{128: true, 129: true, 130: true, 138: true}, minors)
	whole := gpus[0]
	assert.Empty(t, whole.MemoryMode)
	assert.Empty(t, whole.LinkGroup)
	require.Len(t, whole.Placements, 1)
	assert.Equal(t, gpu.TypeGPU, whole.Placements[0].Type)
	assert.Empty(t, whole.Placements[0].Profile)
	vf := gpus[3]
	require.Len(t, vf.Placements, 2, "the modes of a virtual function are the hypervisor's")
	assert.Equal(t, "dpx", vf.Placements[0].Profile)
	assert.Empty(t, vf.Placements[0].Engines)
	assert.Equal(t, map[string][]string{"NPS1": {"DPX"}}, vf.Modes)
}

func TestAMDSection(t *testing.T) {
	inv, err := ParseInventory([]byte(`
amd:
  driverVersion: in-kernel
  busy: host
  xcpName: "."
  locationID: high
  uniqueID: partition
  displayAdapter: true
  delays: {switchMode: 3s, renderNodes: 0s, loadDriver: 8s}
gpus: [{model: MI300X, memoryMode: NPS4}, {model: MI300X, computeMode: CPX}]
`))
	require.NoError(t, err)
	assert.Equal(t, AMDDriver{
		BusyHost: true, XCPName: ".", HighLocationBits: true, UniquePerPartition: true, DisplayAdapter: true,
		Delays: AMDDelays{SwitchMode: 3 * time.Second, LoadDriver: 8 * time.Second},
	}, inv.AMDDriver)
	assert.Equal(t, xcp.CPX, inv.AMD[0].ComputeMode, "what the driver chooses under NPS4")
	assert.Equal(t, xcp.NPS1, inv.AMD[1].MemoryMode)
}

func TestBrokenAMDInventoriesNameTheKey(t *testing.T) {
	for yaml, want := range map[string]string{
		"gpus: [{model: MI300}]":                                                                  `gpus[0].model: unknown model "MI300": choose one of A10-24GB,`,
		"gpus: [{model: MI300X, migMode: disabled}]":                                              "gpus[0].migMode: MI300X has no MIG",
		"gpus: [{model: MI300X, computeMode: TPX}]":                                               `gpus[0].computeMode: MI300X has no mode "TPX" under NPS1: choose one of CPX, QPX, DPX, SPX`,
		"gpus: [{model: MI300X, computeMode: SPX, memoryMode: NPS4}]":                             `gpus[0].computeMode: MI300X has no mode "SPX" under NPS4`,
		"gpus: [{model: MI300X, computeMode: cpx}]":                                               `gpus[0].computeMode: MI300X has no mode "cpx"`,
		"gpus: [{model: MI300A, memoryMode: NPS4}]":                                               `gpus[0].memoryMode: MI300A has no mode "NPS4": choose one of NPS1`,
		"gpus: [{model: MI210, computeMode: SPX}]":                                                "gpus[0]: MI210 cannot be partitioned",
		"gpus: [{model: L4-24GB, computeMode: SPX}]":                                              "gpus[0]: computeMode, memoryMode and virtualFunction are for AMD's GPUs",
		"gpus: [{model: L4-24GB, virtualFunction: true}]":                                         "gpus[0]: computeMode, memoryMode and virtualFunction are for AMD's GPUs",
		"gpus: [{model: MI300X, count: 9}]":                                                       "gpus: AMD's GPUs take 72 DRM numbers",
		"gpus: [{model: MI300X, count: 8}, {model: MI210}]":                                       "gpus: AMD's GPUs take 65 DRM numbers",
		"gpus: [{model: MI300X}]\namd: {driverVersion: newest}":                                   `amd.driverVersion: "newest" is neither in-kernel nor`,
		"gpus: [{model: MI300X}]\namd: {driverVersion: '../../etc'}":                              `amd.driverVersion: "../../etc" is neither in-kernel nor a version`,
		"gpus: [{model: MI300X}]\namd: {busy: never}":                                             `amd.busy: "never" is neither "gpu" nor "host"`,
		"gpus: [{model: MI300X}]\namd: {xcpName: '-'}":                                            `amd.xcpName: "-"`,
		"gpus: [{model: MI300X}]\namd: {locationID: middle}":                                      `amd.locationID: "middle"`,
		"gpus: [{model: MI300X}]\namd: {uniqueID: none}":                                          `amd.uniqueID: "none"`,
		"gpus: [{model: MI300X}]\namd: {delays: {switchMode: -1s}}":                               "amd.delays.switchMode: -1s is negative",
		"gpus: [{model: MI300X}]\namd: {delays: {renderNodes: -1s}}":                              "amd.delays.renderNodes: -1s is negative",
		"gpus: [{model: MI300X}]\namd: {delays: {loadDriver: -1s}}":                               "amd.delays.loadDriver: -1s is negative",
		"gpus: [{model: MI300X}]\namd: {delays: {rendernode: 1s}}":                                `unknown field "rendernode"`,
		"gpus: [{model: MI300X, count: 2, pci: ['0000:05:00.0']}]":                                "gpus[0].pci: 1 addresses for count 2",
		"gpus: [{model: MI300X, pci: ['0000:05:00.0', '0000:05:00.0']}]":                          "gpus[0].pci: 2 addresses for count 1",
		"gpus: [{model: MI300X, pci: [x]}]":                                                       `gpus[0].pci[0]: "x"`,
		"gpus: [{model: MI300X, pci: ['0000:05:00.0']}, {model: L4-24GB, pci: ['0000:05:00.0']}]": "address 0000:05:00.0 is used twice",
	} {
		_, err := ParseInventory([]byte(yaml))
		assert.ErrorContains(t, err, want, yaml)
	}
}
