package sysfs_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware/amd/sysfs"
	"github.com/tranche-dev/tranche/test/amdtest"
)

func TestInventoryOfMI300X(t *testing.T) {
	files := complete("0x74a1", true)
	gpus := gpusOf(t, sysfs.New(files, klog.Logger{}))
	require.Len(t, gpus, 1)
	assert.Len(t, files.Writes, 2, "xcp_config is CPX again")
	got := gpus[0]
	assert.Len(t, got.Placements, 8+4+2+1)
	assert.Equal(t, "gpu-0000-05-00-0-cpx-0", got.Placements[0].Name())
	last := got.Placements[14]
	assert.Equal(t, "gpu-0000-05-00-0", last.Name())
	assert.EqualValues(t, 304, last.ComputeUnits)
	assert.EqualValues(t, 38, amdtest.Placement(t, got, "cpx-7").ComputeUnits)
	assert.Equal(t, 24574*amdtest.MiB, amdtest.Placement(t, got, "cpx-7").Memory)
	got.Placements, got.Counters = nil, nil
	assert.Equal(t, gpu.GPU{
		PCIAddress: "0000:05:00.0", Vendor: gpu.AMD, Minor: 128, UUID: "GPU-e3a9f00d12345678", ProductName: "AMD Instinct MI300X OAM", PCIID: "0x74A11002", PCISubsystemID: "0x74A11002",
		Architecture: "gfx942", DriverVersion: "6.16.13", Partitionable: true, MemoryMode: "NPS1", Modes: map[string][]string{"NPS1": {"SPX", "DPX", "QPX", "CPX"}, "NPS4": {"SPX", "CPX"}},
		Memory: 196592 * amdtest.MiB, ComputeUnits: 304, NUMANode: ptr.To[int64](1), PCIeRoot: "pci0000:00", UntestedLimits: true,
	}, got)
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

	cpx.Nodes[2].Bytes -= amdtest.MiB
	cpx.Nodes = cpx.Nodes[:5] // the missing one counts like the smallest
	_, m = machineOf(t, cpx)
	assert.Equal(t, 6*(128*amdtest.GiB/6/4096*4096)-2*amdtest.MiB, gpusOf(t, m)[0].Memory)
}

// What a mode told of an unknown chip holds in the modes that do not tell it.
func TestXCCsOfAnUnknownChip(t *testing.T) {
	spx, cpx := amdtest.MI300XSPX(), amdtest.MI300XCPX()
	spx.Device, cpx.Device, cpx.Nodes = "0x7fff", "0x7fff", cpx.Nodes[:7]
	files, m := machineOf(t, spx)
	want := gpusOf(t, m)
	files.Replace(cpx)
	assert.Equal(t, want, gpusOf(t, m), "although a partition is missing")
	all := amdtest.MI300XCPX()
	all.Device = "0x7fff"
	_, m = machineOf(t, all)
	assert.Equal(t, want[0].Placements, gpusOf(t, m)[0].Placements, "by the nodes")
	cpx.Nodes = nil
	_, m = machineOf(t, cpx)
	_, err := m.Live(t.Context(), address)
	assert.ErrorContains(t, err, "has no node in KFD's topology")
}

// Where neither the driver nor KFD says how much memory there is, the GPU is left out.
func TestMemoryIsNotInvented(t *testing.T) {
	files, m := machineOf(t, amdtest.MI300XSPX())
	files.Remove(device + "/" + sysfs.VRAMTotalFile)
	assert.Equal(t, 196592*amdtest.MiB, gpusOf(t, m)[0].Memory, "KFD tells as well")
	files.Set(sysfs.NodesDir+"/2/mem_banks/0/properties", "heap_type 0\nsize_in_bytes 1\n")
	_, err := sysfs.New(files, klog.Logger{}).Inventory(t.Context())
	assert.ErrorContains(t, amdtest.Broken(t, err, address), "neither amdgpu nor KFD say how much memory it has")
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
	files.Set(dir+"/xcp_config", "SPX\n")
	select1("SPX")
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
		"DPX > " + dir + "/xcp_config", "QPX > " + dir + "/xcp_config", "CPX > " + dir + "/xcp_config", "SPX > " + dir + "/xcp_config",
	}, files.Writes, "at the end, the mode is as it was")

	assert.Equal(t, g, gpusOf(t, m)[0])
	assert.Len(t, files.Writes, 4, "no write the second time")
	files.Set(sysfs.DevicesDir+"/0000:05:00.0/"+sysfs.MemoryFile, "NPS4\n")
	gpusOf(t, m)
	assert.Len(t, files.Writes, 8, "under another memory mode they are read again")
}

// A description of the modes that cannot be read is not used, and is read again.
func TestConfigsThatCannotBeRead(t *testing.T) {
	want := gpusOf(t, sysfs.New(complete("0x74a1", true), klog.Logger{}))
	dir := device + "/" + sysfs.ConfigDir + "/"
	for name, breaks := range map[string]func(files *amdtest.Tree){
		"read " + dir + "supported_xcp_configs": func(*amdtest.Tree) {}, "read " + dir + "xcp_config": func(*amdtest.Tree) {}, "write " + dir + "xcp_config": func(*amdtest.Tree) {},
		"read " + dir + "xcc/num_inst": func(*amdtest.Tree) {}, "read " + dir + "jpeg/num_shared": func(*amdtest.Tree) {}, "read " + dir + "supported_nps_configs": func(*amdtest.Tree) {},
		"many":           func(files *amdtest.Tree) { files.Set(dir+"jpeg/num_inst", "many") },
		"less than none": func(files *amdtest.Tree) { files.Set(dir+"jpeg/num_inst", "-1") },
	} {
		files := complete("0x74a1", true)
		m := sysfs.New(files, klog.Logger{})
		files.Refuse(name, unix.EIO)
		breaks(files)
		assert.Empty(t, gpusOf(t, m)[0].Placements[0].Engines, name)
		delete(files.Fails, name)
		files.Set(dir+"jpeg/num_inst", "5")
		assert.Equal(t, want, gpusOf(t, m), name)
	}
}

// secondGPU is beside an MI300X.
func secondGPU() amdtest.GPU {
	other := amdtest.MI300XCPX()
	other.Address, other.First = "0000:27:00.0", 136
	for i := range other.Nodes {
		other.Nodes[i].Number, other.Nodes[i].Location, other.Nodes[i].Minor = 10+i, 0x2700+i, 136+i
	}
	return other
}

func TestGPUThatCannotBeReadHidesNoOther(t *testing.T) {
	other := secondGPU()
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
		{"no render node", func() { files.Remove(device + "/drm/renderD128") }, "list /sys/bus/pci/devices/0000:05:00.0/drm"},
		{"a display alone", func() { files.Remove(device + "/drm/renderD128"); files.Set(device+"/drm/card0/dev", "226:0") }, "it has no render node in"},
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

func TestNUMANode(t *testing.T) {
	for text, want := range map[string]*int64{"1\n": ptr.To[int64](1), "0\n": ptr.To[int64](0), "-1\n": nil, "none\n": nil} {
		files, m := machineOf(t, amdtest.MI300XSPX())
		files.Set(sysfs.DevicesDir+"/0000:05:00.0/numa_node", text)
		assert.Equal(t, want, gpusOf(t, m)[0].NUMANode, text)
		files.Set(device+"/unique_id", "0x0") // of a virtual function
		files.Links[device] = "/sys/devices/platform/soc:pcie@1/pci0001:00/0001:00:00.0"
		assert.Empty(t, gpusOf(t, m)[0].UUID)
		assert.Equal(t, "pci0001:00", gpusOf(t, m)[0].PCIeRoot)
	}
}
