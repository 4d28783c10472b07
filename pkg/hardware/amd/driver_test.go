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
	d.cfg.Reload = func(context.Context) error { t.Error("no GPU is known"); return nil }
	assert.ErrorIs(t, d.SetMemoryPartition(t.Context(), "NPS4"), fs.ErrNotExist)
	d.cfg.Reload = nil

	files.Add(amdtest.MI300XSPX())
	files.Remove(sysfs.DriverDirs[0])
	require.NoError(t, d.Open(t.Context()), "older kernels have the folder elsewhere")
	assert.Len(t, inventoryOf(t, d), 1)
	files.Remove(sysfs.DriverDirs[1])
	assert.ErrorIs(t, d.SetMemoryPartition(t.Context(), "NPS4"), fs.ErrNotExist, "it may not load the driver")
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
	assert.ErrorContains(t, d.SetMemoryPartition(t.Context(), "NPS4"), "has not returned")
	_, err = d.Addresses(t.Context())
	assert.NoError(t, err, "nothing stays closed")

	close(release)
	require.NoError(t, d.GateOf("0000:05:00.0").Settle(t.Context()))
	_, err = d.Live(t.Context(), "0000:05:00.0")
	assert.NoError(t, err)
}
