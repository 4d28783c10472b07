package amd

import (
	"context"
	"io/fs"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware/amd/sysfs"
	"github.com/tranche-dev/tranche/test/amdtest"
)

func TestOpenWithoutAMD(t *testing.T) {
	files := amdtest.NewTree()
	files.Remove(sysfs.DriverDirs[0])
	d := driverOn(t, files)
	assert.ErrorIs(t, d.Open(t.Context()), fs.ErrNotExist)
	_, err := d.Inventory(t.Context())
	assert.ErrorIs(t, err, fs.ErrNotExist)
	assert.NoError(t, d.Close(t.Context()))

	files.Add(amdtest.MI300XSPX())
	files.Remove(sysfs.DriverDirs[0])
	require.NoError(t, d.Open(t.Context()), "older kernels have the folder elsewhere")
	assert.Len(t, inventoryOf(t, d), 1)
	_, err = New(Config{})
	assert.Error(t, err)
}

// onPaper is a driver on a machine of these GPUs.
func onPaper(t *testing.T, gpus ...amdtest.GPU) (*amdtest.Tree, *Driver) {
	t.Helper()
	files := amdtest.NewTree(gpus...)
	return files, driverOn(t, files)
}

func driverOn(t *testing.T, files sysfs.Files) *Driver {
	t.Helper()
	d, err := New(Config{Files: files, BusyPatience: time.Millisecond})
	require.NoError(t, err)
	return d
}

func inventoryOf(t *testing.T, d *Driver) []gpu.GPU {
	t.Helper()
	gpus, err := d.Inventory(t.Context())
	require.NoError(t, err)
	return gpus
}

// A kernel that does not count its changes is looked at again where the last look
// does not fit.
func TestSwitchThatKFDDidNotCount(t *testing.T) {
	files, d := onPaper(t, amdtest.MI300XCPX())
	live, err := d.Live(t.Context(), paperAddress)
	require.NoError(t, err)
	require.Len(t, live, 8)
	for _, g := range []amdtest.GPU{amdtest.MI300XDPX(), amdtest.MI300XCPX(), amdtest.MI300XSPX()} {
		generation := files.Files[sysfs.TopologyDir+"/generation_id"]
		files.Replace(g)
		files.Set(sysfs.TopologyDir+"/generation_id", generation)
		require.NoError(t, d.CheckHealth(t.Context(), paperAddress))
		live, err = d.Live(t.Context(), paperAddress)
		require.NoError(t, err)
		for _, p := range live {
			assert.True(t, p.Complete, "%s of %s", p.Name(), g.Compute)
		}
	}
}

func TestLocationsThatContradictTheRenderNodesHandOutNothing(t *testing.T) {
	g := amdtest.MI300XCPX()
	g.Nodes[3].Location, g.Nodes[4].Location = g.Nodes[4].Location, g.Nodes[3].Location
	_, d := onPaper(t, g)
	_, err := d.Live(t.Context(), g.Address)
	require.ErrorContains(t, err, "GPU 0000:05:00.0 in mode CPX: KFD does not tell its partitions apart")
	_, err = d.Inventory(t.Context())
	assert.ErrorContains(t, amdtest.Broken(t, err, g.Address), "does not tell its partitions apart")
	_, err = d.Edits(t.Context(), gpu.Placement{GPU: g.Address, Type: gpu.TypeXCP, Profile: "cpx", Start: 3})
	assert.Error(t, err)
}

func TestHungFileHoldsOnlyItsGPU(t *testing.T) {
	other := amdtest.MI308XCPX(1, 136)
	files, d := onPaper(t, amdtest.MI300XCPX(), other)
	release := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	files.OnRead = func(name string) {
		if name == sysfs.DevicesDir+"/0000:05:00.0/"+sysfs.ComputeFile {
			cancel()
			<-release
		}
	}
	_, err := d.Live(ctx, "0000:05:00.0")
	require.ErrorIs(t, err, context.Canceled)
	assert.ErrorContains(t, err, "reading "+sysfs.DevicesDir+"/0000:05:00.0/"+sysfs.ComputeFile+" on GPU 0000:05:00.0 has not returned")
	_, err = d.Live(t.Context(), "0000:05:00.0")
	assert.ErrorContains(t, err, "has not returned", "who comes later is told at once")
	_, err = d.Live(t.Context(), other.Address)
	assert.NoError(t, err, "other GPUs go on")

	close(release)
	require.NoError(t, d.GateOf("0000:05:00.0").Settle(t.Context()))
	_, err = d.Live(t.Context(), "0000:05:00.0")
	assert.NoError(t, err)
}

func TestWhichGPUsAreOurs(t *testing.T) {
	plain := func(address, device string, gfx int) amdtest.GPU {
		g := amdtest.MI300XSPX()
		g.Address, g.Compute, g.Memory, g.Available, g.Device = address, "", "", "", device
		g.Nodes[0].GFX, g.Nodes[0].XCCs, g.Nodes[0].SIMD = gfx, 1, 416
		return g
	}
	for _, test := range []struct {
		name   string
		device string
		gfx    int
		want   bool
	}{
		{"AMD Instinct MI100", "0x738c", 90008, true},
		{"AMD Instinct MI210", "0x740f", 90010, true},
		{"AMD Instinct MI210 VF", "0x7410", 90010, true},
		{"the graphics of a processor", "0x1586", 100306, false},
		{"a graphics GPU", "0x744c", 110000, false},
	} {
		_, d := onPaper(t, plain("0000:05:00.0", test.device, test.gfx))
		gpus := inventoryOf(t, d)
		if !test.want {
			assert.Empty(t, gpus, test.name)
			continue
		}
		require.Len(t, gpus, 1, test.name)
		assert.Equal(t, test.name, gpus[0].ProductName, "without a file product_name")
		assert.Empty(t, gpus[0].MemoryMode)
		require.Len(t, gpus[0].Placements, 1)
		assert.Empty(t, gpus[0].Placements[0].Profile, "it cannot be cut")
		part, err := d.Create(t.Context(), gpus[0].Placements[0])
		require.NoError(t, err)
		assert.Equal(t, "GPU-e3a9f00d12345678", part.UUID)
	}
	display := plain("0000:05:00.0", "0x740f", 0)
	display.Nodes = nil
	files, d := onPaper(t, display)
	assert.Empty(t, inventoryOf(t, d), "a GPU without KFD")
	files.Remove(sysfs.KFDDir)
	assert.Empty(t, inventoryOf(t, d), "a machine without KFD")
}
