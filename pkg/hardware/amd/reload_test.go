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

// Who uses the driver is told by KFD, by the kernel's modules, and by the open files
// of the host.
func TestWhoUsesTheDriver(t *testing.T) {
	process := func(f *amdtest.Tree, pid, name string, minor uint32) {
		f.Set("/proc/"+pid+"/comm", name+"\n")
		f.Set("/proc/"+pid+"/fd/0", "")
		f.Set("/proc/"+pid+"/fd/7", "")
		f.Infos["/proc/"+pid+"/fd/7"] = sysfs.Info{Mode: fs.ModeDevice | fs.ModeCharDevice, Major: 226, Minor: minor}
	}
	for name, test := range map[string]struct {
		start func(*amdtest.Tree)
		want  string
	}{
		"nobody":                  {func(f *amdtest.Tree) { f.Set(sysfs.RefcntFile, "0\n") }, ""},
		"a kernel without counts": {func(*amdtest.Tree) {}, ""},
		"KFD": {func(f *amdtest.Tree) {
			f.Set(sysfs.RefcntFile, "2\n")
			f.Set(sysfs.ProcessDir+"/17/pasid", "1\n")
			f.Set(sysfs.ProcessDir+"/4242/pasid", "1\n")
			f.Set("/proc/4242/comm", "python3\n")
		}, "processes 17, 4242 (python3) use KFD; once they have ended or moved, this is retried"},
		"a kernel module": {func(f *amdtest.Tree) {
			f.Set(sysfs.RefcntFile, "1\n")
			f.Set(sysfs.HoldersDir+"/amdgpu_peer", "")
		}, "the kernel module amdgpu_peer uses it; once they have ended or moved, this is retried"},
		"a video player": {func(f *amdtest.Tree) {
			f.Set(sysfs.RefcntFile, "1\n")
			process(f, "77", "ffmpeg", 129)
			process(f, "78", "Xorg", 17) // another driver's
		}, "process 77 (ffmpeg) has its device nodes open; once they have ended or moved, this is retried"},
		"two of them": {func(f *amdtest.Tree) {
			f.Set(sysfs.RefcntFile, "2\n")
			process(f, "79", "ffmpeg", 128)
			process(f, "77", "ffmpeg", 129)
		}, "processes 77 (ffmpeg), 79 (ffmpeg) have its device nodes open; once they have ended or moved, this is retried"},
		"users that cannot be seen": {func(f *amdtest.Tree) {
			f.Set(sysfs.RefcntFile, "3\n")
			process(f, "78", "Xorg", 17) // another driver's
		}, "its count of users is 3; the processes cannot be seen from here: find them with lsof"},
	} {
		t.Run(name, func(t *testing.T) {
			files, d := onPaperWithMemory(t, func(*amdtest.Tree) error { return errors.New("not to be called") })
			test.start(files)
			err := d.SetMemoryPartition(t.Context(), "NPS4")
			if test.want == "" {
				assert.EqualError(t, err, "memory mode NPS4: not to be called; memory mode NPS4 stays asked for and comes with the next load of amdgpu, whoever loads it, unless another is asked for before")
				return
			}
			require.ErrorIs(t, err, gpu.ErrInUse)
			assert.ErrorContains(t, err, "memory mode NPS4: amdgpu cannot be reloaded while it is in use: "+test.want)
			assert.Empty(t, files.Writes, "nothing was asked for")
		})
	}
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

// What the driver says of its pairs of modes counts more than the rule of one
// version of the kernel.
func TestPairsOfModesAsTheDriverTells(t *testing.T) {
	files, d := onPaperWithMemory(t, nil)
	modes, err := d.Modes(t.Context(), paperAddress)
	require.NoError(t, err)
	assert.Equal(t, []string{"QPX", "CPX"}, modes.Legal["NPS4"], "by the rule")
	assert.Equal(t, []string{"NPS1", "NPS4"}, modes.Memories)

	dir := sysfs.DevicesDir + "/" + paperAddress + "/"
	files.Set(dir+sysfs.ConfigModes, "SPX, CPX\n")
	files.Set(dir+sysfs.SelectorFile, "SPX\n")
	files.OnWrite = func(name, text string) error {
		if name == dir+sysfs.SelectorFile {
			files.Set(dir+sysfs.ConfigMemory, map[string]string{"SPX": "NPS1\n", "CPX": "NPS1, NPS4\n"}[text])
		}
		return nil
	}
	files.Set(dir+sysfs.ConfigMemory, "NPS1\n")
	d = driverOn(t, files)
	modes, err = d.Modes(t.Context(), paperAddress)
	require.NoError(t, err)
	assert.Equal(t, []string{"CPX"}, modes.Legal["NPS4"])
	assert.Equal(t, modes.Computes, modes.Legal["NPS1"], "of the mode that the GPU is in, what it lists")
}

// Drivers that know nothing of memory modes, and GPUs without modes.
func TestModesOfOlderDrivers(t *testing.T) {
	files, d := onPaper(t, amdtest.MI300XSPX())
	modes, err := d.Modes(t.Context(), paperAddress)
	require.NoError(t, err)
	assert.Equal(t, []string{"NPS1"}, modes.Memories, "a driver that lists none changes none")
	files.Remove(paperMemoryFile)
	modes, err = d.Modes(t.Context(), paperAddress)
	require.NoError(t, err)
	assert.Equal(t, gpu.Modes{
		Compute: "SPX", Computes: []string{"SPX", "DPX", "QPX", "CPX"}, Memory: "NPS1", Memories: []string{"NPS1"},
		Legal: map[string][]string{"NPS1": {"SPX", "DPX", "QPX", "CPX"}},
	}, modes)
	require.NoError(t, d.SetMemoryPartition(t.Context(), "NPS1"))
	require.ErrorIs(t, d.SetMemoryPartition(t.Context(), "NPS4"), gpu.ErrNotSupported)

	files.Remove(modeFile)
	modes, err = d.Modes(t.Context(), paperAddress)
	require.NoError(t, err)
	assert.Equal(t, gpu.Modes{}, modes)
	assert.ErrorContains(t, d.SetMemoryPartition(t.Context(), "NPS1"), "no AMD GPU of this machine has modes")
	assert.ErrorContains(t, d.SetComputePartition(t.Context(), paperAddress, "CPX"), "cannot be cut")
	files.Refuse("stat "+paperMemoryFile, unix.EPERM)
	files.Set(modeFile, "SPX\n")
	_, err = d.Modes(t.Context(), paperAddress)
	assert.ErrorContains(t, err, "is being reset")
}
