package amd

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware/amd/sysfs"
	"github.com/tranche-dev/tranche/test/amdtest"
)

// twoGPUs are two MI300X whose order on the bus is not that of KFD's nodes, which
// are also numbered through each other.
func twoGPUs() (amdtest.GPU, amdtest.GPU) {
	late, early := amdtest.MI300XDPX(), amdtest.MI300XDPX()
	late.Address, late.First = "0000:27:00.0", 128
	early.Address, early.First = "0000:05:00.0", 136
	for i := range 2 {
		late.Nodes[i].Number, late.Nodes[i].Location, late.Nodes[i].Minor = 2+2*i, 0x2700+i, 128+i
		early.Nodes[i].Number, early.Nodes[i].Location, early.Nodes[i].Minor = 3+2*i, 0x500+i, 136+i
	}
	return late, early
}

func renderNodes(t *testing.T, d *Driver, p gpu.Placement) []string {
	t.Helper()
	edits, err := d.Edits(t.Context(), p)
	require.NoError(t, err)
	var names []string
	for _, n := range edits.DeviceNodes {
		if n.Path != sysfs.KFDDevice {
			names = append(names, n.Path)
		}
	}
	return names
}

// The order of GPUs on the bus is not that in KFD: an index into one list names another GPU in the other
// (ROCm/k8s-gpu-dra-driver#88).
func TestGPUsAreTakenByAddress(t *testing.T) {
	late, early := twoGPUs()
	files, d := onPaper(t, late, early)
	for _, g := range []amdtest.GPU{late, early} {
		p := gpu.Placement{GPU: g.Address, Type: gpu.TypeXCP, Profile: "dpx", Start: 1}
		assert.Equal(t, []string{fmt.Sprintf("/dev/dri/renderD%d", g.First+1)}, renderNodes(t, d, p))
	}
	_, err := d.Create(t.Context(), gpu.Placement{GPU: early.Address, Type: gpu.TypeGPU, Profile: "spx"})
	require.Error(t, err, "the nodes of this tree do not follow")
	assert.Equal(t, []string{"SPX > " + sysfs.DevicesDir + "/" + early.Address + "/" + sysfs.ComputeFile}, files.Writes)
}

// Files that one GPU lacks leave its values empty.
func TestWhatAGPULacksIsNotThatOfAnother(t *testing.T) {
	late, early := twoGPUs()
	files, d := onPaper(t, late, early)
	bare := sysfs.DevicesDir + "/" + late.Address
	files.Remove(bare + "/unique_id")
	files.Remove(bare + "/numa_node")
	files.Remove(bare + "/device")
	delete(files.Links, bare)
	gpus := inventoryOf(t, d)
	require.Len(t, gpus, 2)
	assert.NotEmpty(t, gpus[0].UUID)
	assert.Empty(t, gpus[1].UUID)
	assert.Nil(t, gpus[1].NUMANode)
	assert.Empty(t, gpus[1].ProductName)
	assert.Empty(t, gpus[1].PCIeRoot)
	assert.Equal(t, 128, gpus[1].Minor)
}

// Through a GPU's primary node (card0) work lands on any of its partitions, also
// on those of others.
func TestContainersGetNoPrimaryNode(t *testing.T) {
	files, d := onPaper(t, amdtest.MI300XCPX())
	files.Set(sysfs.DevicesDir+"/"+paperAddress+"/drm/card1/dev", "226:1\n")
	files.Device("/dev/dri/card1", 226, 1, 44)
	for _, p := range []gpu.Placement{paperPlacement("cpx", 0), paperPlacement("cpx", 7), gpu.Monitor(paperAddress)} {
		for _, name := range renderNodes(t, d, p) {
			assert.True(t, strings.HasPrefix(name, "/dev/dri/renderD"), name)
		}
	}
}

// KFD's unique_id is the GPU's with some drivers and the partition's with others
// (ROCm/k8s-gpu-dra-driver#20).
func TestPartitionsAreNotJoinedByUniqueID(t *testing.T) {
	late, early := twoGPUs()
	for name, ids := range map[string]func(i int) string{
		"the same for both GPUs": func(int) string { return "unique_id 1" },
		"one for each partition": func(i int) string { return fmt.Sprintf("unique_id %d", i) },
		"none":                   func(int) string { return "" },
	} {
		files, d := onPaper(t, late, early)
		for i := range 4 {
			file := fmt.Sprintf("%s/%d/properties", sysfs.NodesDir, 2+i)
			files.Set(file, strings.Replace(files.Files[file], "unique_id 16404946649897475633", ids(i), 1))
		}
		for _, g := range []amdtest.GPU{late, early} {
			live, err := d.Live(t.Context(), g.Address)
			require.NoError(t, err, name)
			require.Len(t, live, 2, name)
			assert.Equal(t, sysfs.RenderName(g.First+1), live[1].ID, name)
		}
	}
}

// A table of legal modes would be wrong for chips with fewer XCCs and for later memory modes.
func TestModesAreThoseTheDriverTells(t *testing.T) {
	c := amdtest.MI350XSPX()
	c.Memory, c.Compute, c.Available = "NPS2", "DPX", "DPX, QPX, CPX"
	c.Nodes = nil
	for i := range 2 {
		c.Nodes = append(c.Nodes, amdtest.Node{Number: 5 + i, Location: 0x7500 + i, Minor: 128 + i, SIMD: 512, XCCs: 4, GFX: 90500, Bytes: 147456*amdtest.MiB - int64(i)*16*amdtest.MiB})
	}
	_, d := onPaper(t, c)
	g := inventoryOf(t, d)[0]
	assert.Len(t, g.Placements, 2+4+8)
	_, whole := g.Placement(g.Name())
	assert.False(t, whole, "one piece is not to be had under NPS2")
}

// A driver version of four parts is no semantic version, which the API server would refuse as one
// (ROCm/gpu-operator#609).
func TestDriverVersionOfFourParts(t *testing.T) {
	files, d := onPaper(t, amdtest.MI300XSPX())
	files.Set(sysfs.ModuleDir+"/version", "6.19.14.31400000\n")
	assert.Equal(t, "6.19.14.31400000", inventoryOf(t, d)[0].DriverVersion)
	files.Remove(sysfs.ModuleDir + "/version")
	assert.Empty(t, inventoryOf(t, d)[0].DriverVersion, "the driver that comes with the kernel has none")
}
