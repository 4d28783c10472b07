package nvidia

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/test/simulator/nvdriver"
)

// inventoryOf is the file of an inventory with some GPUs.
func inventoryOf(t *testing.T, gpus string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "inventory.yaml")
	require.NoError(t, os.WriteFile(file, []byte("gpus: ["+gpus+"]"), 0o600))
	return file
}

// linkGroups are the groups of the GPUs of a machine, in order.
func (m *machine) linkGroups() []string {
	var groups []string
	for _, g := range m.GPUs() {
		groups = append(groups, g.LinkGroup)
	}
	return groups
}

func TestLinkGroups(t *testing.T) {
	const fabric = "nvswitch-0x233010DE.0"
	for name, test := range map[string]struct {
		inventory string
		want      []string
	}{
		"NVSwitches": {inventoryOf(t, "{model: H100-80GB, count: 3}"), []string{fabric, fabric, fabric}},
		"Ampere":     {inventoryOf(t, "{model: A100-40GB, count: 2, migMode: disabled}"), []string{"nvswitch-0x20B010DE.0", "nvswitch-0x20B010DE.0"}},
		"two boards": {inventoryOf(t, "{model: H100-80GB, count: 2, pci: ['0000:01:00.0', '0000:02:00.0']}, {model: H200-141GB, count: 2, pci: ['0000:81:00.0', '0000:82:00.0']}"),
			[]string{fabric, fabric, "nvswitch-0x233510DE.0", "nvswitch-0x233510DE.0"}},
		"Ampere in MIG mode":  {inventoryOf(t, "{model: A100-40GB, count: 2, migMode: enabled}"), []string{"", ""}},
		"Hopper in MIG mode":  {inventoryOf(t, "{model: H100-80GB, count: 2, migMode: enabled}"), []string{fabric, fabric}},
		"one GPU of a board":  {inventoryOf(t, "{model: H100-80GB}"), []string{""}},
		"bridges":             {inventoryOf(t, "{model: A100-PCIE-80GB, count: 4, nvLinkBridge: 2, pci: ['0000:01:00.0', '0000:02:00.0', '0000:81:00.0', '0000:82:00.0']}"), []string{"gpu-0000-01-00-0", "gpu-0000-01-00-0", "gpu-0000-81-00-0", "gpu-0000-81-00-0"}},
		"a bridge of four":    {inventoryOf(t, "{model: H200-141GB-NVL, count: 4, nvLinkBridge: 4, pci: ['0000:01:00.0', '0000:02:00.0', '0000:81:00.0', '0000:82:00.0']}"), []string{"gpu-0000-01-00-0", "gpu-0000-01-00-0", "gpu-0000-01-00-0", "gpu-0000-01-00-0"}},
		"NVLink, but nothing": {inventoryOf(t, "{model: A100-PCIE-80GB, count: 2}"), []string{"", ""}},
		"no NVLink":           {inventoryOf(t, "{model: L4-24GB, count: 2}"), []string{"", ""}},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, test.want, simulated(t, test.inventory).linkGroups()) })
	}
}

// Links that are down are none, until the next reading that finds them. What cannot be read is as before.
func TestLinksThatAreDown(t *testing.T) {
	m := simulated(t, inventoryOf(t, "{model: H100-80GB, count: 3}"))
	const fabric = "nvswitch-0x233010DE.0"
	first := m.GPUs()[0].PCIAddress
	failing := func(call string, code nvml.Return) nvdriver.Faults {
		return nvdriver.Faults{Calls: []nvdriver.CallFault{{Call: call, GPU: first, Error: nvdriver.Return(code)}}}
	}
	for name, faults := range map[string]nvdriver.Faults{
		"links are down":         {LinksDown: []string{first}},
		"not registered":         {Unregistered: []string{first}},
		"links are not readable": failing("GetNvLinkState", nvml.ERROR_UNKNOWN),
		"the other end is not":   failing("GetNvLinkRemoteDeviceType", nvml.ERROR_UNKNOWN),
		"the fabric is not":      failing("GetGpuFabricInfo", nvml.ERROR_UNKNOWN),
	} {
		t.Run(name, func(t *testing.T) {
			m.SetFaults(faults)
			want := map[bool]string{true: fabric}[len(faults.Calls) > 0]
			assert.Equal(t, []string{want, fabric, fabric}, m.linkGroups())
			m.NoFaults()
			assert.Equal(t, []string{fabric, fabric, fabric}, m.linkGroups())
		})
	}
}

// hostAddress is a GPU in a guest: its link tells the address that the other GPU has on the host, which in the
// guest is that of a third one.
type hostAddress struct {
	nvml.Device
	of string
}

func (h hostAddress) GetNvLinkRemotePciInfo(link int) (nvml.PciInfo, nvml.Return) {
	info, ret := h.Device.GetNvLinkRemotePciInfo(link)
	info.BusId = [32]int8{}
	for i, c := range h.of {
		info.BusId[i] = int8(c)
	}
	return info, ret
}

func TestLinkThatOneEndTells(t *testing.T) {
	inventory := inventoryOf(t, "{model: A100-PCIE-80GB, count: 3, nvLinkBridge: 3, pci: ['0000:01:00.0', '0000:02:00.0', '0000:03:00.0']}")
	m := simulated(t, inventory, trapping(func(d nvml.Device) nvml.Device { return hostAddress{d, "00000000:03:00.0"} }))
	assert.Equal(t, []string{"", "", ""}, m.linkGroups())
}

func TestFabricName(t *testing.T) {
	g := &gpu.GPU{PCIID: "0x233010DE"}
	assert.Equal(t, "nvswitch-0x233010DE.0", fabricName(g, nvml.GpuFabricInfo{}))
	rack := nvml.GpuFabricInfo{CliqueId: 4026, ClusterUuid: [16]uint8{0x9c, 0x6f, 0x5a, 0xf3, 0x53, 0xbf, 0x49, 0xb5, 0xa4, 0x36, 0xb6, 0x67, 0x66, 0xc4, 0x13, 0xc3}}
	assert.Equal(t, "9c6f5af3-53bf-49b5-a436-b66766c413c3.4026", fabricName(g, rack))
}

// A library that fails from the start tells of no link.
func TestLinksThatWereNeverRead(t *testing.T) {
	m := simulated(t, inventoryOf(t, "{model: H100-80GB, count: 2}"))
	m.SetFaults(nvdriver.Faults{Calls: []nvdriver.CallFault{{Call: "GetNvLinkState", GPU: "*", Error: nvdriver.Return(nvml.ERROR_UNKNOWN)}}})
	assert.Equal(t, []string{"", ""}, m.linkGroups())
}
