package amd

import (
	"io/fs"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware/xcp"
)

func TestInventoryOfMI300X(t *testing.T) {
	files, d := onPaper(t, mi300xCPX())
	files.set(devicesDir+"/0000:05:00.0/product_name", "AMD Instinct MI300X OAM\n")
	gpus := inventoryOf(t, d)
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
	assert.Equal(t, 196592*mib, got.Memory)
	assert.Equal(t, &numa, got.NUMANode)
	assert.Equal(t, "pci0000:00", got.PCIeRoot)

	assert.Len(t, got.Placements, 8+4+2+1)
	assert.Equal(t, "gpu-0000-05-00-0-cpx-0", got.Placements[0].Name())
	last := got.Placements[14]
	assert.Equal(t, "gpu-0000-05-00-0", last.Name())
	assert.EqualValues(t, 304, last.ComputeUnits)
	assert.EqualValues(t, 38, placement(t, got, "cpx-7").ComputeUnits)
	assert.Equal(t, 24574*mib, placement(t, got, "cpx-7").Memory)
}

// What the GPU offers does not change with the mode that it is in.
func TestInventoryIsTheSameInEveryMode(t *testing.T) {
	_, d := onPaper(t, mi300xSPX())
	want := inventoryOf(t, d)
	for _, c := range []paperGPU{mi300xCPX(), mi300xDPX()} {
		_, d := onPaper(t, c)
		assert.Equal(t, want, inventoryOf(t, d), c.compute)
	}
}

func TestInventoryOfMI308XInTwoDomains(t *testing.T) {
	_, d := onPaper(t, mi308xCPX(1, 136), mi308xCPX(0, 128))
	gpus := inventoryOf(t, d)
	require.Len(t, gpus, 2)
	for i, address := range []string{"0000:0a:00.0", "0001:0a:00.0"} {
		g := gpus[i]
		assert.Equal(t, address, g.PCIAddress)
		assert.Equal(t, i, g.Index)
		assert.Equal(t, "AMD Instinct MI308X", g.ProductName, "by the chip")
		assert.Len(t, g.Placements, 4, "SPX is not to be had under NPS4")
		assert.EqualValues(t, 51539607552, placement(t, g, "cpx-0").Memory)
		assert.EqualValues(t, 51522830336, placement(t, g, "cpx-3").Memory, "the last one is 16 MiB smaller")
		assert.EqualValues(t, 20, placement(t, g, "cpx-3").ComputeUnits)
		live, err := d.Live(t.Context(), address)
		require.NoError(t, err)
		require.Len(t, live, 4)
		assert.Equal(t, renderName(128+8*i+3), live[3].ID, "eight render nodes for each GPU, whatever the number of partitions")
	}
}

func TestInventoryOfMI350X(t *testing.T) {
	_, d := onPaper(t, mi350xSPX())
	g := inventoryOf(t, d)[0]
	assert.Equal(t, "gfx950", g.Architecture)
	assert.Equal(t, "AMD Instinct MI350X", g.ProductName)
	assert.EqualValues(t, 309220868096, g.Memory)
	assert.EqualValues(t, 32, placement(t, g, "cpx-0").ComputeUnits)
	live, err := d.Live(t.Context(), g.PCIAddress)
	require.NoError(t, err)
	assert.Empty(t, live, "a GPU in one piece has no partitions")
}

// What KFD told of a live mode stays published after the GPU was switched.
func TestMemoryThatWasSeenIsRemembered(t *testing.T) {
	odd := mi300xDPX()
	odd.nodes[1].bytes -= 4 * mib
	files, d := onPaper(t, odd)
	before := inventoryOf(t, d)
	assert.EqualValues(t, 103070826496-4*mib, placement(t, before[0], "dpx-1").Memory)

	files.replace(mi300xSPX())
	assert.Equal(t, before, inventoryOf(t, d))
	files.set(moduleDir+"/version", "6.16.14\n")
	assert.EqualValues(t, 103070826496, placement(t, inventoryOf(t, d)[0], "dpx-1").Memory, "another driver may divide otherwise")
}

// A partition that is missing does not change what the GPU has.
func TestMemoryWithAMissingPartition(t *testing.T) {
	c := mi308xCPX(0, 128)
	c.nodes = c.nodes[:3] // the smaller one is not there
	_, d := onPaper(t, c)
	g := inventoryOf(t, d)[0]
	assert.Equal(t, 196592*mib, g.Memory)
	assert.EqualValues(t, 51522830336, placement(t, g, "cpx-3").Memory, "calculated")
}

// An APU has no memory of its own, and its partitions do not add up to the same.
func TestMemoryOfAnAPU(t *testing.T) {
	spx := mi300xSPX()
	spx.vramMiB, spx.device, spx.available = 0, "0x74a0", "SPX, TPX, CPX"
	spx.nodes[0].xccs, spx.nodes[0].simd, spx.nodes[0].bytes = 6, 912, 128*gib
	cpx := spx
	cpx.compute, cpx.nodes = "CPX", nil
	for i := range 6 {
		cpx.nodes = append(cpx.nodes, paperNode{number: 2 + i, location: 1280 + i, minor: 128 + i, simd: 152, xccs: 1, gfx: 90402, bytes: 128 * gib / 6 / 4096 * 4096})
	}
	files, d := onPaper(t, spx)
	before := inventoryOf(t, d)
	assert.Equal(t, 128*gib, before[0].Memory)
	assert.Equal(t, 128*gib/6/4096*4096, placement(t, before[0], "cpx-5").Memory)
	files.replace(cpx)
	assert.Equal(t, before, inventoryOf(t, d))
}

// A driver that does not cap partitions shows each of them the memory of all.
func TestMemoryThatPartitionsHaveInCommon(t *testing.T) {
	c := mi300xCPX()
	for i := range c.nodes {
		c.nodes[i].bytes = 196592 * mib
	}
	_, d := onPaper(t, c)
	g := inventoryOf(t, d)[0]
	assert.Equal(t, 196592*mib, g.Memory)
	assert.Equal(t, 24574*mib, placement(t, g, "cpx-0").Memory)
}

func TestWhichGPUsAreOurs(t *testing.T) {
	plain := func(address string, gfx int) paperGPU {
		c := mi300xSPX()
		c.address, c.compute, c.memory, c.available, c.device = address, "", "", "", "0x740f"
		c.nodes[0].gfx, c.nodes[0].xccs, c.nodes[0].simd = gfx, 1, 416
		return c
	}
	for _, test := range []struct {
		name string
		gfx  int
		want bool
	}{
		{"MI100", 90008, true},
		{"MI210", 90010, true},
		{"the graphics of a processor", 100306, false},
		{"a graphics GPU", 110000, false},
	} {
		_, d := onPaper(t, plain("0000:05:00.0", test.gfx))
		gpus := inventoryOf(t, d)
		if !test.want {
			assert.Empty(t, gpus, test.name)
			continue
		}
		require.Len(t, gpus, 1, test.name)
		assert.Empty(t, gpus[0].MemoryMode)
		require.Len(t, gpus[0].Placements, 1)
		assert.Empty(t, gpus[0].Placements[0].Profile, "it cannot be cut")
		part, err := d.Create(t.Context(), gpus[0].Placements[0])
		require.NoError(t, err)
		assert.Equal(t, "GPU-e3a9f00d12345678", part.UUID)
	}
	display := plain("0000:05:00.0", 0)
	display.nodes = nil
	files, d := onPaper(t, display)
	assert.Empty(t, inventoryOf(t, d), "a GPU without KFD")
	files.remove(kfdDir)
	assert.Empty(t, inventoryOf(t, d), "a machine without KFD")
}

// The driver's list of modes is the truth; the rule is for drivers without one.
func TestModesThatAGPUOffers(t *testing.T) {
	files, d := onPaper(t, mi300xSPX())
	compute, offer := devicesDir+"/0000:05:00.0/"+computeFile, devicesDir+"/0000:05:00.0/"+availableComputeFile
	profiles := func() []string {
		var all []string
		for _, p := range inventoryOf(t, d)[0].Placements {
			if p.Start == 0 {
				all = append(all, p.Profile)
			}
		}
		return all
	}
	files.set(offer, "SPX, CPX\n")
	assert.Equal(t, []string{"cpx", "spx"}, profiles())
	files.remove(offer)
	assert.Equal(t, []string{"cpx", "qpx", "dpx", "spx"}, profiles())
	files.infos[compute] = Info{Mode: 0o444}
	assert.Equal(t, []string{"spx"}, profiles(), "a file that cannot be written")
	delete(files.infos, compute)
	files.set(devicesDir+"/0000:05:00.0/device", "0x74b5\n")
	assert.Equal(t, []string{"spx"}, profiles(), "a virtual function")
}

// The driver's own description of the modes tells XCCs and engines, and is read
// once for each load and memory mode.
func TestConfigsAreReadOnce(t *testing.T) {
	c := mi300xCPX()
	c.nodes, c.device = c.nodes[:7], "0x0000" // neither KFD nor the chip tell how many XCCs there are
	files, d := onPaper(t, c)
	dir := devicesDir + "/0000:05:00.0/" + configDir
	select1 := func(mode string) {
		row := map[string][3]string{"SPX": {"8", "4", "1"}, "DPX": {"4", "2", "1"}, "QPX": {"2", "1", "1"}, "CPX": {"1", "1", "2"}}[mode]
		files.set(dir+"/xcc/num_inst", row[0]+"\n")
		files.set(dir+"/dec/num_inst", row[1]+"\n")
		files.set(dir+"/dec/num_shared", row[2]+"\n")
	}
	files.set(dir+"/supported_xcp_configs", "SPX, DPX, QPX, CPX\n")
	files.set(dir+"/xcp_config", "CPX\n")
	select1("CPX")
	files.onWrite = func(name, text string) error {
		if name == dir+"/xcp_config" {
			select1(text)
		}
		return nil
	}
	g := inventoryOf(t, d)[0]
	assert.Equal(t, map[string]int64{"decoders": 4}, placement(t, g, "").Engines)
	assert.Equal(t, map[string]int64{"decoders": 1}, placement(t, g, "qpx-3").Engines)
	assert.Empty(t, placement(t, g, "cpx-7").Engines, "an engine that two share is nobody's")
	assert.Equal(t, []string{
		"SPX > " + dir + "/xcp_config", "DPX > " + dir + "/xcp_config", "QPX > " + dir + "/xcp_config", "CPX > " + dir + "/xcp_config",
	}, files.writes)

	assert.Equal(t, g, inventoryOf(t, d)[0])
	assert.Len(t, files.writes, 4, "no write the second time")
	files.set(devicesDir+"/0000:05:00.0/"+memoryFile, "NPS4\n")
	inventoryOf(t, d)
	assert.Len(t, files.writes, 8, "under another memory mode they are read again")
}

func TestGPUThatCannotBeReadHidesNoOther(t *testing.T) {
	other := mi300xCPX()
	other.address, other.first = "0000:27:00.0", 136
	for i := range other.nodes {
		other.nodes[i].number, other.nodes[i].location, other.nodes[i].minor = 10+i, 0x2700+i, 136+i
	}
	files, d := onPaper(t, mi300xSPX(), other)
	require.Len(t, inventoryOf(t, d), 2)
	for _, test := range []struct {
		name   string
		breaks func()
		want   string
	}{
		{"in reset", func() { files.fails["read "+devicesDir+"/0000:05:00.0/"+computeFile] = unix.EPERM }, "is being reset"},
		{"no mode", func() { files.set(devicesDir+"/0000:05:00.0/"+computeFile, "UNKNOWN\n") }, `the compute mode is "UNKNOWN"`},
		{"no memory mode", func() { files.set(devicesDir+"/0000:05:00.0/"+memoryFile, "UNKNOWN\n") }, `the memory mode is "UNKNOWN"`},
		{"no KFD node", func() { files.remove(nodesDir + "/2"); files.set(topologyDir+"/generation_id", "2\n") }, "has no node in KFD's topology"},
		{"no render node", func() { files.remove(devicesDir + "/0000:05:00.0/drm/renderD128") }, "list /sys/bus/pci/devices/0000:05:00.0/drm"},
		{"memory that is no number", func() { files.set(devicesDir+"/0000:05:00.0/"+vramTotalFile, "many\n") }, `says "many"`},
		{"gone", func() { files.remove(devicesDir + "/0000:05:00.0"); files.remove(driverDirs[0] + "/0000:05:00.0") }, "is gone from the PCI bus"},
	} {
		t.Run(test.name, func(t *testing.T) {
			*files = *newTree()
			files.add(mi300xSPX())
			files.add(other)
			files.set(topologyDir+"/generation_id", test.name+"\n")
			require.Len(t, inventoryOf(t, d), 2)
			test.breaks()
			gpus, err := d.Inventory(t.Context())
			require.Len(t, gpus, 1)
			assert.Equal(t, other.address, gpus[0].PCIAddress)
			assert.ErrorContains(t, broken(t, err, "0000:05:00.0"), test.want)
		})
	}
}

func TestOpenWithoutAMD(t *testing.T) {
	files := newTree()
	files.remove(driverDirs[0])
	d := driverOn(t, files)
	assert.ErrorIs(t, d.Open(t.Context()), fs.ErrNotExist)
	_, err := d.Inventory(t.Context())
	assert.ErrorIs(t, err, fs.ErrNotExist)
	assert.NoError(t, d.Close(t.Context()))

	files.add(mi300xSPX())
	files.remove(driverDirs[0])
	require.NoError(t, d.Open(t.Context()), "older kernels have the folder elsewhere")
	assert.Len(t, inventoryOf(t, d), 1)
	_, err = New(Config{})
	assert.Error(t, err)
}

func TestAddressThatIsNone(t *testing.T) {
	_, d := onPaper(t, mi300xSPX())
	for _, bad := range []string{"", "../../..", "0000:05:00", "0000:05:00.0/..", "0000:C1:00.0"} {
		_, err := d.Live(t.Context(), bad)
		assert.ErrorContains(t, err, "no PCI address", bad)
	}
}

// The table of chips has as many XCCs for each as its modes need.
func TestChips(t *testing.T) {
	for id, chip := range chips {
		assert.NotEmpty(t, xcp.Legal(xcp.Chip{XCCs: chip.xccs, GFX: 90402}, xcp.NPS1), "%#x", id)
		assert.Contains(t, chip.name, "AMD Instinct MI3")
	}
}
