package models

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/lists"
	"github.com/tranche-dev/tranche/test/golden"
)

func TestBuiltInInventories(t *testing.T) {
	assert.Equal(t, []string{
		"a100-40x8", "a100-40x8-mig-off", "a100-80x8", "a100-80x8-mig-off", "a30x4", "b200x8", "gb10x1",
		"h100x2-mi300x2", "h100x8", "h200x8", "l4x4", "mi300a4", "mi300x8", "mi308x8", "mi325x8", "mi350x8", "mi355x8",
		"mixed", "rtxpro6000x4",
	}, InventoryNames())
	for name, want := range map[string]struct {
		model string
		count int
		mig   bool
	}{
		"a100-40x8":         {"A100-40GB", 8, true},
		"a100-40x8-mig-off": {"A100-40GB", 8, false},
		"a100-80x8":         {"A100-80GB", 8, true},
		"a100-80x8-mig-off": {"A100-80GB", 8, false},
		"a30x4":             {"A30-24GB", 4, true},
		"b200x8":            {"B200-180GB", 8, false},
		"h100x8":            {"H100-80GB", 8, false},
		"h200x8":            {"H200-141GB", 8, false},
		"l4x4":              {"L4-24GB", 4, false},
		"rtxpro6000x4":      {"RTX-PRO-6000-Blackwell-96GB", 4, false},
	} {
		inv, err := LoadInventory(name)
		require.NoError(t, err)
		assert.Equal(t, name, inv.Name)
		assert.Equal(t, "580.159.04", inv.DriverVersion)
		assert.Equal(t, 13000, inv.CUDADriverVersion)
		assert.Equal(t, 300*time.Millisecond, inv.Delays.CreateGPUInstance+inv.Delays.CreateComputeInstance)
		assert.Equal(t, time.Second, inv.Delays.DestroyGPUInstance+inv.Delays.DestroyComputeInstance)
		require.Len(t, inv.GPUs, want.count)
		numa := map[int]int{}
		for i, g := range inv.GPUs {
			assert.Equal(t, want.model, g.Model.Key)
			assert.Equal(t, want.mig, g.MIGMode)
			numa[g.NUMANode]++
			if i > 0 {
				assert.Less(t, inv.GPUs[i-1].PCI, g.PCI, "PCI order is index order")
			}
		}
		assert.Equal(t, map[int]int{0: want.count / 2, 1: want.count / 2}, numa)
	}
}

func TestInventoryDefaults(t *testing.T) {
	inv, err := ParseInventory([]byte("gpus: [{model: L4-24GB}, {model: H100-80GB, count: 20}]"))
	require.NoError(t, err)
	assert.Equal(t, defaultDriverVersion, inv.DriverVersion)
	assert.Equal(t, 13000, inv.CUDADriverVersion)
	assert.Equal(t, defaultDelays, inv.Delays)
	require.Len(t, inv.GPUs, 21)
	assert.Equal(t, "0000:9d:00.0", inv.GPUs[20].PCI, "evenly spaced")
	assert.Equal(t, "L4-24GB", inv.GPUs[0].Model.Key)
	assert.Equal(t, 0, inv.GPUs[0].NUMANode)
	assert.Equal(t, 1, inv.GPUs[20].NUMANode)
	seen := map[string]bool{}
	for _, g := range inv.GPUs {
		assert.Regexp(t, pciAddress, g.PCI)
		assert.False(t, seen[g.PCI])
		seen[g.PCI] = true
	}
}

func TestInventoryOrderIsByAddress(t *testing.T) {
	inv, err := ParseInventory([]byte(`gpus:
- {model: H100-80GB, pci: ["0001:01:00.0"]}
- {model: L4-24GB, pci: ["0000:e1:00.0"]}
- {model: A30-24GB, numaNode: -1}
`))
	require.NoError(t, err)
	assert.Equal(t, "0000:11:00.0", inv.GPUs[0].PCI)
	assert.Equal(t, -1, inv.GPUs[0].NUMANode)
	assert.Equal(t, "L4-24GB", inv.GPUs[1].Model.Key)
	assert.Equal(t, "H100-80GB", inv.GPUs[2].Model.Key)
}

func TestBrokenInventoriesNameTheKey(t *testing.T) {
	for name, tt := range map[string]struct{ yaml, want string }{
		"unknown key":       {"gpus: [{model: L4-24GB, coutn: 2}]", `unknown field "coutn"`},
		"unknown key above": {"gpu: []", `unknown field "gpu"`},
		"key twice":         {"gpus: [{model: L4-24GB, model: L4-24GB}]", `"model" already set`},
		"not yaml":          {"gpus: [", "not a valid inventory"},
		"empty":             {"", "gpus: empty"},
		"unknown model":     {"gpus: [{model: L4-24GB}, {model: H900}]", `gpus[1].model: unknown model "H900": choose one of A10-24GB,`},
		"several models":    {"gpus: [{model: L4-24GB}, {model: V100}]", `gpus[1].model: "V100" is several models: choose one of V100-16GB, V100-32GB,`},
		"no model":          {"gpus: [{count: 2}]", "gpus[0].model: missing; name a model, or describe"},
		"count zero":        {"gpus: [{model: L4-24GB, count: 0}]", "gpus[0].count: 0 is not between 1 and 32"},
		"count text":        {"gpus: [{model: L4-24GB, count: many}]", "gpus.0.count"},
		"count too large":   {"gpus: [{model: L4-24GB, count: 33}]", "gpus[0].count: 33"},
		"GPUs too many":     {"gpus: [{model: L4-24GB, count: 20}, {model: L4-24GB, count: 20}]", "gpus[1].count: more than 32"},
		"mig mode":          {"gpus: [{model: H100-80GB, migMode: on}]", "migMode"},
		"mig mode word":     {"gpus: [{model: H100-80GB, migMode: yep}]", `gpus[0].migMode: "yep" is neither`},
		"no mig":            {"gpus: [{model: L4-24GB, migMode: enabled}]", "gpus[0].migMode: L4-24GB has no MIG"},
		"numa":              {"gpus: [{model: L4-24GB, numaNode: -2}]", "gpus[0].numaNode: -2"},
		"numa above":        {"gpus: [{model: L4-24GB, numaNode: 1024}]", "gpus[0].numaNode: 1024"},
		"bridge of one":     {"gpus: [{model: A100-PCIE-40GB, count: 2, nvLinkBridge: 1}]", "gpus[0].nvLinkBridge: 2 GPUs cannot be joined by 1"},
		"bridge below":      {"gpus: [{model: A100-PCIE-40GB, count: 2, nvLinkBridge: -2}]", "gpus[0].nvLinkBridge: 2 GPUs cannot be joined by -2"},
		"bridge of some":    {"gpus: [{model: A100-PCIE-40GB, count: 4, nvLinkBridge: 3}]", "gpus[0].nvLinkBridge: 4 GPUs cannot be joined by 3"},
		"bridge of none":    {"gpus: [{model: L4-24GB, count: 2, nvLinkBridge: 2}]", "gpus[0].nvLinkBridge: L4-24GB takes no NVLink bridge"},
		"bridge of a board": {"gpus: [{model: A100-40GB, count: 2, nvLinkBridge: 2}]", "gpus[0].nvLinkBridge: A100-40GB takes no NVLink bridge"},
		"bridge of AMD's":   {"gpus: [{model: MI300X, count: 2, nvLinkBridge: 2}]", "gpus[0].nvLinkBridge: MI300X takes no NVLink bridge"},
		"address":           {`gpus: [{model: L4-24GB, pci: ["1b:00.0"]}]`, `gpus[0].pci[0]: "1b:00.0" is not an address`},
		"address capitals":  {`gpus: [{model: L4-24GB, pci: ["0000:1B:00.0"]}]`, "small letters"},
		"address twice":     {`gpus: [{model: L4-24GB, count: 2, pci: ["0000:1b:00.0", "0000:1b:00.0"]}]`, "address 0000:1b:00.0 is used twice"},
		"addresses":         {`gpus: [{model: L4-24GB, count: 2, pci: ["0000:1b:00.0"]}]`, "gpus[0].pci: 1 addresses for count 2"},
		"driver version":    {"driverVersion: ../../etc\ngpus: [{model: L4-24GB}]", "driverVersion:"},
		"driver number":     {"driverVersion: 580\ngpus: [{model: L4-24GB}]", "driverVersion"},
		"cuda version":      {"cudaDriverVersion: \"13\"\ngpus: [{model: L4-24GB}]", "cudaDriverVersion:"},
		"delay":             {"delays: {createGPUInstance: -1s}\ngpus: [{model: L4-24GB}]", "delays.createGPUInstance: -1s is negative"},
		"delay text":        {"delays: {createGPUInstance: soon}\ngpus: [{model: L4-24GB}]", "soon"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ParseInventory([]byte(tt.yaml))
			assert.ErrorContains(t, err, tt.want)
		})
	}
}

func TestWhereInventoriesAreFound(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "lab.yaml")
	require.NoError(t, os.WriteFile(path, []byte("gpus: [{model: A30-24GB}]\ndelays: {setMigMode: 5s}"), 0o600))
	for _, name := range []string{"lab", path} {
		inv, err := LoadInventory(name, t.TempDir(), dir)
		require.NoError(t, err)
		assert.Equal(t, "A30-24GB", inv.GPUs[0].Model.Key)
		assert.Equal(t, 5*time.Second, inv.Delays.SetMIGMode)
		assert.Equal(t, defaultDelays.CreateGPUInstance, inv.Delays.CreateGPUInstance)
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "h100x8.yaml"), []byte("gpus: [{model: H100-80GB}]"), 0o600))
	inv, err := LoadInventory("h100x8", dir)
	require.NoError(t, err)
	assert.Len(t, inv.GPUs, 1, "a folder's file wins")

	_, err = LoadInventory("h100", dir)
	assert.EqualError(t, err, `unknown inventory "h100": choose one of `+strings.Join(InventoryNames(), ", ")+`, or an instance type like p5.48xlarge, or put h100.yaml into `+dir)
	_, err = LoadInventory("", dir)
	assert.ErrorContains(t, err, "no inventory named: choose one of a100-40x8")
	_, err = LoadInventory(filepath.Join(dir, "none.yaml"))
	assert.ErrorIs(t, err, os.ErrNotExist)
	require.NoError(t, os.WriteFile(path, []byte("gpus: [{model: A31}]"), 0o600))
	_, err = LoadInventory(path)
	assert.ErrorContains(t, err, "inventory "+path+": gpus[0].model")
}

func FuzzParse(f *testing.F) {
	for _, name := range InventoryNames() {
		data, err := builtIn.ReadFile("inventories/" + name + ".yaml")
		require.NoError(f, err)
		f.Add(data)
	}
	f.Add([]byte("gpus: [{model: L4-24GB, count: 32, pci: []}]\ndelays: {setMigMode: 1h}"))
	f.Add([]byte("gpus: [{model: [], count: 1e9}]"))
	f.Add([]byte("gpus: [{" + rtx5080 + "}, {model: T4}]"))
	f.Add([]byte("gpus: [{model: MI300X, virtualFunction: true, computeMode: CPX, memoryMode: NPS2}, {model: MI210}]"))
	f.Fuzz(func(t *testing.T, data []byte) {
		inv, err := ParseInventory(data)
		if err != nil {
			assert.NotEmpty(t, err.Error())
			return
		}
		gpus := inv.Hardware("fuzz")
		assert.Len(t, gpus, len(inv.GPUs)+len(inv.AMD))
		assert.NotEmpty(t, gpus)
		assert.LessOrEqual(t, len(gpus), MaxGPUs)
		assert.False(t, strings.ContainsAny(inv.DriverVersion+inv.AMDDriver.Version, "/ "))
		seen := map[string]bool{}
		for _, g := range gpus {
			assert.Regexp(t, pciAddress, g.PCIAddress)
			assert.False(t, seen[g.PCIAddress])
			seen[g.PCIAddress] = true
			assert.NotEmpty(t, g.Placements)
		}
	})
}

// A driver has the CUDA version of its branch, unless the inventory says another.
func TestCUDAOfDriver(t *testing.T) {
	for driver, want := range map[string]int{"535.261.03": 12020, "550.54.15": 12040, "580.142": 13000, "590.44.01": 13010, "600.1": 13020, "999.1": 13030, "470.1": 12000,
		"530.30.02": 12010, "545.23.08": 12030, "555.42.02": 12050, "560.28.03": 12060, "565.57.01": 12070, "570.86.10": 12080, "575.51.03": 12090, "595.1": 13020, "610.1": 13030} {
		inv, err := ParseInventory([]byte("driverVersion: '" + driver + "'\ngpus: [{model: L4-24GB}]"))
		require.NoError(t, err)
		assert.Equal(t, want, inv.CUDADriverVersion, driver)
	}
	inv, err := ParseInventory([]byte("{driverVersion: '535.1', cudaDriverVersion: '12.9', gpus: [{model: L4-24GB}]}"))
	require.NoError(t, err)
	assert.Equal(t, 12090, inv.CUDADriverVersion)
	assert.Equal(t, "12.9", inv.Hardware("")[0].CUDADriverVersion)
}

// GPUs at one bridge are linked each to each, others are not.
func TestBridges(t *testing.T) {
	inv, err := ParseInventory([]byte("gpus: [{model: A100-PCIE-40GB, count: 4, nvLinkBridge: 2}, {model: A100-PCIE-40GB, count: 2}]"))
	require.NoError(t, err)
	groups := lists.Map(inv.Hardware(""), func(g gpu.GPU) string { return g.LinkGroup })
	assert.Equal(t, []string{"gpu-0000-11-00-0", "gpu-0000-11-00-0", "gpu-0000-2b-00-0", "gpu-0000-2b-00-0", "", ""}, groups)
}

func TestParsePCI(t *testing.T) {
	domain, bus, device := ParsePCI("12ab:c3:1f.7")
	assert.Equal(t, []uint32{0x12ab, 0xc3, 0x1f}, []uint32{domain, bus, device})
}

// Any number of a model is in the digest of an inventory's hardware. After a change, see that
// docs/reference/models.md changed as you meant it.
func TestHardwareOfInventories(t *testing.T) {
	digests := &strings.Builder{}
	for _, name := range InventoryNames() {
		inv, err := LoadInventory(name)
		require.NoError(t, err)
		text, err := json.Marshal(inv.Hardware("node-a"))
		require.NoError(t, err)
		fmt.Fprintf(digests, "%x  %s\n", sha256.Sum256(text), name)
	}
	golden.Equal(t, "testdata/hardware.sha256", digests.String())
}

func TestUUID(t *testing.T) {
	assert.Equal(t, "8824325c-fd82-5f67-94cf-3e4293a63891", UUID("node-a/H100/0"))
}
