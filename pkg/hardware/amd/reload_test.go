package amd

import (
	"context"
	"errors"
	"io/fs"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware/amd/sysfs"
	"github.com/tranche-dev/tranche/test/amdtest"
)

var paperMemoryFile = sysfs.DevicesDir + "/" + paperAddress + "/" + sysfs.MemoryFile

// onPaperWithMemory is a GPU that can be put into NPS4, on a machine where
// reload is what loads the driver.
func onPaperWithMemory(t *testing.T, reload func(files *amdtest.Tree) error) (*amdtest.Tree, *Driver) {
	t.Helper()
	files, d := onPaper(t, amdtest.MI300XSPX())
	files.Set(sysfs.DevicesDir+"/"+paperAddress+"/"+sysfs.AvailableMemoryFile, "NPS1, NPS4\n")
	d.cfg.Reload = func(context.Context) error {
		files.Set(paperMemoryFile, "NPS1\n") // what was written is only a request
		return reload(files)
	}
	return files, d
}

// loaded shows a new load of the driver.
func loaded(files *amdtest.Tree, mode string) {
	files.Mu.Lock()
	info := files.Infos[sysfs.ModuleDir]
	info.Inode++
	files.Infos[sysfs.ModuleDir] = info
	files.Mu.Unlock()
	files.Set(paperMemoryFile, mode+"\n")
}

// A driver in use is not reloaded, and nothing is asked of it.
func TestWhoUsesTheDriver(t *testing.T) {
	files, d := onPaperWithMemory(t, func(*amdtest.Tree) error { return errors.New("not to be called") })
	files.Set(sysfs.ProcessDir+"/4242/pasid", "1\n")
	err := d.SetMemoryPartition(t.Context(), "NPS4")
	require.ErrorIs(t, err, gpu.ErrInUse)
	require.EqualError(t, err, "memory mode NPS4: amdgpu cannot be reloaded while it is in use: process 4242 uses KFD; once they have ended or moved, this is retried")
	assert.Empty(t, files.Writes)
	files.Remove(sysfs.ProcessDir + "/4242")
	assert.EqualError(t, d.SetMemoryPartition(t.Context(), "NPS4"),
		"memory mode NPS4: not to be called; memory mode NPS4 stays asked for and comes with the next load of amdgpu, whoever loads it, unless another is asked for before")
}

// A driver in use is asked again with growing pauses, as a GPU is.
func TestDriverInUseIsAskedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tries := 0
		_, d := onPaperWithMemory(t, func(f *amdtest.Tree) error {
			if tries++; tries < 3 {
				return gpu.ErrInUse
			}
			loaded(f, "NPS4")
			return nil
		})
		d.cfg.BusyPatience = 10 * time.Second
		start := time.Now()
		require.NoError(t, d.SetMemoryPartition(t.Context(), "NPS4"))
		assert.Equal(t, 750*time.Millisecond, time.Since(start))
	})
}

func TestReloadThatDoesNothing(t *testing.T) {
	_, d := onPaperWithMemory(t, func(*amdtest.Tree) error { return nil })
	assert.ErrorContains(t, d.SetMemoryPartition(t.Context(), "NPS4"), "amdgpu was to be reloaded, and was not; memory mode NPS4 stays asked for")
}

// A reload that fails and has loaded the driver all the same has done what it should.
func TestReloadThatFailsAndLoads(t *testing.T) {
	files, d := onPaperWithMemory(t, func(f *amdtest.Tree) error { loaded(f, "NPS4"); return errors.New("too slow") })
	require.NoError(t, d.SetMemoryPartition(t.Context(), "NPS4"))

	d.cfg.Reload = func(context.Context) error { loaded(files, "NPS4"); return errors.New("too slow") }
	err := d.SetMemoryPartition(t.Context(), "NPS1")
	require.ErrorIs(t, err, gpu.ErrModeLost)
	assert.ErrorContains(t, err, "too slow")
}

// A GPU without modes has no part in it.
func TestMemoryModeBesideAGPUWithoutModes(t *testing.T) {
	files, d := onPaperWithMemory(t, func(f *amdtest.Tree) error { loaded(f, "NPS4"); return nil })
	other := plain()
	other.Address, other.First = "0000:27:00.0", 136
	other.Nodes[0].Number, other.Nodes[0].Location, other.Nodes[0].Minor = 10, 0x2700, 136
	files.Add(other)
	require.NoError(t, d.SetMemoryPartition(t.Context(), "NPS4"))
	assert.Equal(t, []string{"NPS4 > " + paperMemoryFile}, files.Writes)
}

// KFD counts the states of its topology from the load of the driver on: the same count
// may be another topology.
func TestSameGenerationUnderAnotherLoad(t *testing.T) {
	files, d := onPaper(t, amdtest.MI300XCPX())
	require.Len(t, inventoryOf(t, d), 1)
	files.Mu.Lock()
	files.Infos[sysfs.TopologyDir] = sysfs.Info{Mode: fs.ModeDir | 0o755, Inode: 99}
	generation := files.Files[sysfs.TopologyDir+"/generation_id"]
	files.Mu.Unlock()
	files.Replace(amdtest.MI300XDPX())
	files.Set(sysfs.TopologyDir+"/generation_id", generation)
	live, err := d.Live(t.Context(), paperAddress)
	require.NoError(t, err)
	assert.Len(t, live, 2)
}

// GPUs in several hives, and alone, are each asked.
func TestEveryHiveIsAsked(t *testing.T) {
	second := amdtest.MI308XCPX(1, 136)
	second.Memory, second.Available = "NPS1", "SPX, DPX, CPX"
	files := amdtest.NewTree()
	for _, g := range []amdtest.GPU{amdtest.MI300XSPX(), second} {
		files.Add(g)
		files.Set(sysfs.DevicesDir+"/"+g.Address+"/"+sysfs.AvailableMemoryFile, "NPS1, NPS4\n")
	}
	d := driverOn(t, files)
	d.cfg.Reload = func(context.Context) error { return errors.New("not to be called") }
	other := sysfs.DevicesDir + "/" + second.Address + "/" + sysfs.MemoryFile
	files.Refuse("write "+other, unix.EINVAL)
	err := d.SetMemoryPartition(t.Context(), "NPS4")
	require.ErrorContains(t, err, "amdgpu refuses memory mode NPS4: GPU 0001:0a:00.0: write NPS4 to "+other)
	assert.ErrorContains(t, err, "stays asked for", "the first one took it, and is in no hive with the other")
}

// Drivers that know nothing of memory modes, and GPUs without modes.
func TestOlderDrivers(t *testing.T) {
	files, d := onPaper(t, amdtest.MI300XSPX())
	files.Remove(paperMemoryFile)
	require.NoError(t, d.SetMemoryPartition(t.Context(), "NPS1"))
	require.ErrorIs(t, d.SetMemoryPartition(t.Context(), "NPS4"), gpu.ErrNotSupported)
	files.Remove(modeFile)
	assert.ErrorContains(t, d.SetMemoryPartition(t.Context(), "NPS1"), "no AMD GPU of this machine has modes")
	assert.ErrorContains(t, d.SetComputePartition(t.Context(), paperAddress, "CPX"), "cannot be cut")
	files.Refuse("stat "+paperMemoryFile, unix.EPERM)
	files.Set(modeFile, "SPX\n")
	assert.ErrorContains(t, d.SetMemoryPartition(t.Context(), "NPS4"), "is being reset")
}
