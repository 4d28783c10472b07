package sysfs_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware/amd/sysfs"
	"github.com/tranche-dev/tranche/test/amdtest"
)

func TestInventoryOfMI300X(t *testing.T) {
	files, m := machineOf(t, amdtest.MI300XCPX())
	files.Set(sysfs.DevicesDir+"/0000:05:00.0/product_name", "AMD Instinct MI300X OAM\n")
	gpus := gpusOf(t, m)
	require.Len(t, gpus, 1)
	got := gpus[0]
	numa := int64(1)
	assert.Equal(t, "0000:05:00.0", got.PCIAddress)
	assert.Equal(t, gpu.AMD, got.Vendor)
	assert.Equal(t, 128, got.Minor)
	assert.Equal(t, "GPU-e3a9f00d12345678", got.UUID)
	assert.Equal(t, "AMD Instinct MI300X OAM", got.ProductName)
	assert.Equal(t, "gfx942", got.Architecture)
	assert.Equal(t, "6.16.13", got.DriverVersion)
	assert.Equal(t, "NPS1", got.MemoryMode)
	assert.Equal(t, 196592*amdtest.MiB, got.Memory)
	assert.Equal(t, &numa, got.NUMANode)
	assert.Equal(t, "pci0000:00", got.PCIeRoot)

	assert.Len(t, got.Placements, 8+4+2+1)
	assert.Equal(t, "gpu-0000-05-00-0-cpx-0", got.Placements[0].Name())
	last := got.Placements[14]
	assert.Equal(t, "gpu-0000-05-00-0", last.Name())
	assert.EqualValues(t, 304, last.ComputeUnits)
	assert.EqualValues(t, 38, amdtest.Placement(t, got, "cpx-7").ComputeUnits)
	assert.Equal(t, 24574*amdtest.MiB, amdtest.Placement(t, got, "cpx-7").Memory)
}

// What the GPU offers does not change with the mode that it is in.
func TestInventoryIsTheSameInEveryMode(t *testing.T) {
	_, m := machineOf(t, amdtest.MI300XSPX())
	want := gpusOf(t, m)
	for _, c := range []amdtest.GPU{amdtest.MI300XCPX(), amdtest.MI300XDPX()} {
		_, m := machineOf(t, c)
		assert.Equal(t, want, gpusOf(t, m), c.Compute)
	}
}

func TestInventoryOfMI308XInTwoDomains(t *testing.T) {
	_, m := machineOf(t, amdtest.MI308XCPX(1, 136), amdtest.MI308XCPX(0, 128))
	gpus := gpusOf(t, m)
	require.Len(t, gpus, 2)
	for i, address := range []string{"0000:0a:00.0", "0001:0a:00.0"} {
		g := gpus[i]
		assert.Equal(t, address, g.PCIAddress)
		assert.Equal(t, i, g.Index)
		assert.Equal(t, "AMD Instinct MI308X", g.ProductName, "by the chip")
		assert.Len(t, g.Placements, 4, "SPX is not to be had under NPS4")
		assert.EqualValues(t, 51539607552, amdtest.Placement(t, g, "cpx-0").Memory)
		assert.EqualValues(t, 51522830336, amdtest.Placement(t, g, "cpx-3").Memory, "the last one is 16 MiB smaller")
		assert.EqualValues(t, 20, amdtest.Placement(t, g, "cpx-3").ComputeUnits)
		live, err := m.Live(t.Context(), address)
		require.NoError(t, err)
		require.Len(t, live, 4)
		assert.Equal(t, sysfs.RenderName(128+8*i+3), live[3].ID, "eight render nodes for each GPU, whatever the number of partitions")
	}
}

func TestInventoryOfMI350X(t *testing.T) {
	_, m := machineOf(t, amdtest.MI350XSPX())
	g := gpusOf(t, m)[0]
	assert.Equal(t, "gfx950", g.Architecture)
	assert.Equal(t, "AMD Instinct MI350X", g.ProductName)
	assert.EqualValues(t, 309220868096, g.Memory)
	assert.EqualValues(t, 32, amdtest.Placement(t, g, "cpx-0").ComputeUnits)
	live, err := m.Live(t.Context(), g.PCIAddress)
	require.NoError(t, err)
	assert.Empty(t, live, "a GPU in one piece has no partitions")
}

// What KFD told of a live mode stays published after the GPU was switched.
func TestMemoryThatWasSeenIsRemembered(t *testing.T) {
	odd := amdtest.MI300XDPX()
	odd.Nodes[1].Bytes -= 4 * amdtest.MiB
	files, m := machineOf(t, odd)
	before := gpusOf(t, m)
	assert.EqualValues(t, 103070826496-4*amdtest.MiB, amdtest.Placement(t, before[0], "dpx-1").Memory)

	files.Replace(amdtest.MI300XSPX())
	assert.Equal(t, before, gpusOf(t, m))
	files.Set(sysfs.ModuleDir+"/version", "6.16.14\n")
	assert.EqualValues(t, 103070826496, amdtest.Placement(t, gpusOf(t, m)[0], "dpx-1").Memory, "another driver may divide otherwise")
}

// A partition that is missing does not change what the GPU has.
func TestMemoryWithAMissingPartition(t *testing.T) {
	c := amdtest.MI308XCPX(0, 128)
	c.Nodes = c.Nodes[:3] // the smaller one is not there
	_, m := machineOf(t, c)
	g := gpusOf(t, m)[0]
	assert.Equal(t, 196592*amdtest.MiB, g.Memory)
	assert.EqualValues(t, 51522830336, amdtest.Placement(t, g, "cpx-3").Memory, "calculated")
}

// An APU has no memory of its own, and its partitions do not add up to the same.
func TestMemoryOfAnAPU(t *testing.T) {
	spx := amdtest.MI300XSPX()
	spx.VRAMMiB, spx.Device, spx.Available = 0, "0x74a0", "SPX, TPX, CPX"
	spx.Nodes[0].XCCs, spx.Nodes[0].SIMD, spx.Nodes[0].Bytes = 6, 912, 128*amdtest.GiB
	cpx := spx
	cpx.Compute, cpx.Nodes = "CPX", nil
	for i := range 6 {
		cpx.Nodes = append(cpx.Nodes, amdtest.Node{Number: 2 + i, Location: 1280 + i, Minor: 128 + i, SIMD: 152, XCCs: 1, GFX: 90402, Bytes: 128 * amdtest.GiB / 6 / 4096 * 4096})
	}
	files, m := machineOf(t, spx)
	before := gpusOf(t, m)
	assert.Equal(t, 128*amdtest.GiB, before[0].Memory)
	assert.Equal(t, 128*amdtest.GiB/6/4096*4096, amdtest.Placement(t, before[0], "cpx-5").Memory)
	files.Replace(cpx)
	assert.Equal(t, before, gpusOf(t, m))
}

// A driver that does not cap partitions shows each of them the memory of all.
func TestMemoryThatPartitionsHaveInCommon(t *testing.T) {
	c := amdtest.MI300XCPX()
	for i := range c.Nodes {
		c.Nodes[i].Bytes = 196592 * amdtest.MiB
	}
	_, m := machineOf(t, c)
	g := gpusOf(t, m)[0]
	assert.Equal(t, 196592*amdtest.MiB, g.Memory)
	assert.Equal(t, 24574*amdtest.MiB, amdtest.Placement(t, g, "cpx-0").Memory)
}

// The driver's list of modes is the truth; the rule is for drivers without one.
func TestModesThatAGPUOffers(t *testing.T) {
	files, m := machineOf(t, amdtest.MI300XSPX())
	compute, offer := sysfs.DevicesDir+"/0000:05:00.0/"+sysfs.ComputeFile, sysfs.DevicesDir+"/0000:05:00.0/"+sysfs.AvailableComputeFile
	profiles := func() []string {
		var all []string
		for _, p := range gpusOf(t, m)[0].Placements {
			if p.Start == 0 {
				all = append(all, p.Profile)
			}
		}
		return all
	}
	files.Set(offer, "SPX, CPX\n")
	assert.Equal(t, []string{"cpx", "spx"}, profiles())
	files.Remove(offer)
	assert.Equal(t, []string{"cpx", "qpx", "dpx", "spx"}, profiles())
	files.Infos[compute] = sysfs.Info{Mode: 0o444}
	assert.Equal(t, []string{"spx"}, profiles(), "a file that cannot be written")
	delete(files.Infos, compute)
	files.Set(sysfs.DevicesDir+"/0000:05:00.0/device", "0x74b5\n")
	assert.Equal(t, []string{"spx"}, profiles(), "a virtual function")
}

// The driver's own description of the modes tells XCCs and engines, and is read
// once for each load and memory mode.
func TestConfigsAreReadOnce(t *testing.T) {
	c := amdtest.MI300XCPX()
	c.Nodes, c.Device = c.Nodes[:7], "0x0000" // neither KFD nor the chip tell how many XCCs there are
	files, m := machineOf(t, c)
	dir := sysfs.DevicesDir + "/0000:05:00.0/" + sysfs.ConfigDir
	select1 := func(mode string) {
		row := map[string][3]string{"SPX": {"8", "4", "1"}, "DPX": {"4", "2", "1"}, "QPX": {"2", "1", "1"}, "CPX": {"1", "1", "2"}}[mode]
		files.Set(dir+"/xcc/num_inst", row[0]+"\n")
		files.Set(dir+"/dec/num_inst", row[1]+"\n")
		files.Set(dir+"/dec/num_shared", row[2]+"\n")
	}
	files.Set(dir+"/supported_xcp_configs", "SPX, DPX, QPX, CPX\n")
	files.Set(dir+"/xcp_config", "CPX\n")
	select1("CPX")
	files.OnWrite = func(name, text string) error {
		if name == dir+"/xcp_config" {
			select1(text)
		}
		return nil
	}
	g := gpusOf(t, m)[0]
	assert.Equal(t, map[string]int64{"decoders": 4}, amdtest.Placement(t, g, "").Engines)
	assert.Equal(t, map[string]int64{"decoders": 1}, amdtest.Placement(t, g, "qpx-3").Engines)
	assert.Empty(t, amdtest.Placement(t, g, "cpx-7").Engines, "an engine that two share is nobody's")
	assert.Equal(t, []string{
		"SPX > " + dir + "/xcp_config", "DPX > " + dir + "/xcp_config", "QPX > " + dir + "/xcp_config", "CPX > " + dir + "/xcp_config",
	}, files.Writes)

	assert.Equal(t, g, gpusOf(t, m)[0])
	assert.Len(t, files.Writes, 4, "no write the second time")
	files.Set(sysfs.DevicesDir+"/0000:05:00.0/"+sysfs.MemoryFile, "NPS4\n")
	gpusOf(t, m)
	assert.Len(t, files.Writes, 8, "under another memory mode they are read again")
}

func TestGPUThatCannotBeReadHidesNoOther(t *testing.T) {
	other := amdtest.MI300XCPX()
	other.Address, other.First = "0000:27:00.0", 136
	for i := range other.Nodes {
		other.Nodes[i].Number, other.Nodes[i].Location, other.Nodes[i].Minor = 10+i, 0x2700+i, 136+i
	}
	files, m := machineOf(t, amdtest.MI300XSPX(), other)
	require.Len(t, gpusOf(t, m), 2)
	for _, test := range []struct {
		name   string
		breaks func()
		want   string
	}{
		{"in reset", func() { files.Fails["read "+sysfs.DevicesDir+"/0000:05:00.0/"+sysfs.ComputeFile] = unix.EPERM }, "is being reset"},
		{"no mode", func() { files.Set(sysfs.DevicesDir+"/0000:05:00.0/"+sysfs.ComputeFile, "UNKNOWN\n") }, `the compute mode is "UNKNOWN"`},
		{"no memory mode", func() { files.Set(sysfs.DevicesDir+"/0000:05:00.0/"+sysfs.MemoryFile, "UNKNOWN\n") }, `the memory mode is "UNKNOWN"`},
		{"no KFD node", func() { files.Remove(sysfs.NodesDir + "/2"); files.Set(sysfs.TopologyDir+"/generation_id", "2\n") }, "has no node in KFD's topology"},
		{"no render node", func() { files.Remove(sysfs.DevicesDir + "/0000:05:00.0/drm/renderD128") }, "list /sys/bus/pci/devices/0000:05:00.0/drm"},
		{"memory that is no number", func() { files.Set(sysfs.DevicesDir+"/0000:05:00.0/"+sysfs.VRAMTotalFile, "many\n") }, `says "many"`},
		{"gone", func() {
			files.Remove(sysfs.DevicesDir + "/0000:05:00.0")
			files.Remove(sysfs.DriverDirs[0] + "/0000:05:00.0")
		}, "is gone from the PCI bus"},
	} {
		t.Run(test.name, func(t *testing.T) {
			*files = *amdtest.NewTree()
			files.Add(amdtest.MI300XSPX())
			files.Add(other)
			files.Set(sysfs.TopologyDir+"/generation_id", test.name+"\n")
			require.Len(t, gpusOf(t, m), 2)
			test.breaks()
			gpus, err := m.Inventory(t.Context())
			require.Len(t, gpus, 1)
			assert.Equal(t, other.Address, gpus[0].PCIAddress)
			assert.ErrorContains(t, amdtest.Broken(t, err, "0000:05:00.0"), test.want)
		})
	}
}

func TestAddressThatIsNone(t *testing.T) {
	_, m := machineOf(t, amdtest.MI300XSPX())
	for _, bad := range []string{"", "../../..", "0000:05:00", "0000:05:00.0/..", "0000:C1:00.0"} {
		_, err := m.Live(t.Context(), bad)
		assert.ErrorContains(t, err, "no PCI address", bad)
	}
}

// A GPU that can be partitioned is ours, whatever KFD has of it: if it has nothing, that is an error.
func TestGPUThatKFDNeverHad(t *testing.T) {
	files, m := machineOf(t, amdtest.MI300XSPX())
	files.Remove(sysfs.NodesDir + "/2")
	gpus, err := m.Inventory(t.Context())
	assert.Empty(t, gpus)
	assert.ErrorContains(t, amdtest.Broken(t, err, "0000:05:00.0"), "has no node in KFD's topology")
}

// Without the number of the chip, the number of XCCs would be a guess.
func TestChipThatCannotBeRead(t *testing.T) {
	files, m := machineOf(t, amdtest.MI300XSPX())
	files.Fails["read "+sysfs.DevicesDir+"/0000:05:00.0/"+sysfs.DeviceFile] = unix.EIO
	gpus, err := m.Inventory(t.Context())
	assert.Empty(t, gpus)
	assert.ErrorIs(t, amdtest.Broken(t, err, "0000:05:00.0"), unix.EIO)
}

func TestNUMANode(t *testing.T) {
	for text, want := range map[string]*int64{"1\n": ptr.To[int64](1), "-1\n": nil, "none\n": nil} {
		files, m := machineOf(t, amdtest.MI300XSPX())
		files.Set(sysfs.DevicesDir+"/0000:05:00.0/numa_node", text)
		assert.Equal(t, want, gpusOf(t, m)[0].NUMANode, text)
	}
}
