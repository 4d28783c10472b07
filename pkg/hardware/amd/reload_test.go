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
)

var paperMemoryFile = devicesDir + "/" + paperAddress + "/" + memoryFile

// onPaperWithMemory is a GPU that can be put into NPS4, on a machine where
// reload is what loads the driver.
func onPaperWithMemory(t *testing.T, reload func(files *tree) error) (*tree, *Driver) {
	t.Helper()
	files, d := onPaper(t, mi300xSPX())
	files.set(devicesDir+"/"+paperAddress+"/"+availableMemoryFile, "NPS1, NPS4\n")
	d.cfg.Reload = func(context.Context) error {
		files.set(paperMemoryFile, "NPS1\n") // what was written is only a request
		return reload(files)
	}
	return files, d
}

// loaded shows a new load of the driver.
func loaded(files *tree, mode string) {
	files.mu.Lock()
	info := files.infos[moduleDir]
	info.Inode++
	files.infos[moduleDir] = info
	files.mu.Unlock()
	files.set(paperMemoryFile, mode+"\n")
}

// Who uses the driver is told by KFD, by the kernel's modules, and by the open files
// of the host.
func TestWhoUsesTheDriver(t *testing.T) {
	process := func(f *tree, pid, name string, minor uint32) {
		f.set("/proc/"+pid+"/comm", name+"\n")
		f.set("/proc/"+pid+"/fd/0", "")
		f.set("/proc/"+pid+"/fd/7", "")
		f.infos["/proc/"+pid+"/fd/7"] = Info{Mode: fs.ModeDevice | fs.ModeCharDevice, Major: 226, Minor: minor}
	}
	for name, test := range map[string]struct {
		start func(*tree)
		want  string
	}{
		"nobody":                  {func(f *tree) { f.set(refcntFile, "0\n") }, ""},
		"a kernel without counts": {func(*tree) {}, ""},
		"KFD": {func(f *tree) {
			f.set(refcntFile, "2\n")
			f.set(processDir+"/17/pasid", "1\n")
			f.set(processDir+"/4242/pasid", "1\n")
			f.set("/proc/4242/comm", "python3\n")
		}, "processes 17, 4242 (python3) use KFD; once they have ended or moved this is tried again"},
		"a kernel module": {func(f *tree) {
			f.set(refcntFile, "1\n")
			f.set(holdersDir+"/amdgpu_peer", "")
		}, "the kernel module amdgpu_peer uses it; once they have ended or moved this is tried again"},
		"a video player": {func(f *tree) {
			f.set(refcntFile, "1\n")
			process(f, "77", "ffmpeg", 129)
			process(f, "78", "Xorg", 17) // another driver's
		}, "process 77 (ffmpeg) has its device nodes open; once they have ended or moved this is tried again"},
		"two of them": {func(f *tree) {
			f.set(refcntFile, "2\n")
			process(f, "79", "ffmpeg", 128)
			process(f, "77", "ffmpeg", 129)
		}, "processes 77 (ffmpeg), 79 (ffmpeg) have its device nodes open; once they have ended or moved this is tried again"},
		"who is not to be seen": {func(f *tree) {
			f.set(refcntFile, "3\n")
			process(f, "78", "Xorg", 17) // another driver's
		}, "its count of users is 3; who does is not to be seen: look with lsof"},
	} {
		t.Run(name, func(t *testing.T) {
			files, d := onPaperWithMemory(t, func(*tree) error { return errors.New("not to be called") })
			test.start(files)
			err := d.SetMemoryPartition(t.Context(), "NPS4")
			if test.want == "" {
				assert.EqualError(t, err, "memory mode NPS4: not to be called; memory mode NPS4 stays asked for and comes with the next load of amdgpu, whoever loads it, unless another is asked for before")
				return
			}
			require.ErrorIs(t, err, gpu.ErrInUse)
			assert.ErrorContains(t, err, "memory mode NPS4: amdgpu cannot be loaded anew while it is in use: "+test.want)
			assert.Empty(t, files.writes, "nothing was asked for")
		})
	}
}

// A driver in use is asked again with growing pauses, as a GPU is.
func TestDriverInUseIsAskedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tries := 0
		_, d := onPaperWithMemory(t, func(f *tree) error {
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
	_, d := onPaperWithMemory(t, func(*tree) error { return nil })
	assert.ErrorContains(t, d.SetMemoryPartition(t.Context(), "NPS4"), "amdgpu was to be loaded anew, and was not; memory mode NPS4 stays asked for")
}

// A reload that fails and has loaded the driver all the same has done what it should.
func TestReloadThatFailsAndLoads(t *testing.T) {
	files, d := onPaperWithMemory(t, func(f *tree) error { loaded(f, "NPS4"); return errors.New("too slow") })
	require.NoError(t, d.SetMemoryPartition(t.Context(), "NPS4"))

	d.cfg.Reload = func(context.Context) error { loaded(files, "NPS4"); return errors.New("too slow") }
	err := d.SetMemoryPartition(t.Context(), "NPS1")
	require.ErrorIs(t, err, gpu.ErrModeLost)
	assert.ErrorContains(t, err, "too slow")
}

// KFD counts the states of its topology from the load of the driver on: the same count
// may be another topology.
func TestSameGenerationUnderAnotherLoad(t *testing.T) {
	files, d := onPaper(t, mi300xCPX())
	require.Len(t, inventoryOf(t, d), 1)
	files.mu.Lock()
	files.infos[topologyDir] = Info{Mode: fs.ModeDir | 0o755, Inode: 99}
	generation := files.files[topologyDir+"/generation_id"]
	files.mu.Unlock()
	files.replace(mi300xDPX())
	files.set(topologyDir+"/generation_id", generation)
	live, err := d.Live(t.Context(), paperAddress)
	require.NoError(t, err)
	assert.Len(t, live, 2)
}

// GPUs in several hives, and alone, are each asked.
func TestEveryHiveIsAsked(t *testing.T) {
	second := mi308xCPX(1, 136)
	second.memory, second.available = "NPS1", "SPX, DPX, CPX"
	files := newTree()
	for _, c := range []paperGPU{mi300xSPX(), second} {
		files.add(c)
		files.set(devicesDir+"/"+c.address+"/"+availableMemoryFile, "NPS1, NPS4\n")
	}
	d := driverOn(t, files)
	d.cfg.Reload = func(context.Context) error { return errors.New("not to be called") }
	other := devicesDir + "/" + second.address + "/" + memoryFile
	files.refuse("write "+other, unix.EINVAL)
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

	dir := devicesDir + "/" + paperAddress + "/"
	files.set(dir+configModes, "SPX, CPX\n")
	files.set(dir+selectorFile, "SPX\n")
	files.onWrite = func(name, text string) error {
		if name == dir+selectorFile {
			files.set(dir+configMemory, map[string]string{"SPX": "NPS1\n", "CPX": "NPS1, NPS4\n"}[text])
		}
		return nil
	}
	files.set(dir+configMemory, "NPS1\n")
	d = driverOn(t, files)
	modes, err = d.Modes(t.Context(), paperAddress)
	require.NoError(t, err)
	assert.Equal(t, []string{"CPX"}, modes.Legal["NPS4"])
	assert.Equal(t, modes.Computes, modes.Legal["NPS1"], "of the mode that the GPU is in, what it lists")
}

// Drivers that know nothing of memory modes, and GPUs without modes.
func TestModesOfOlderDrivers(t *testing.T) {
	files, d := onPaper(t, mi300xSPX())
	modes, err := d.Modes(t.Context(), paperAddress)
	require.NoError(t, err)
	assert.Equal(t, []string{"NPS1"}, modes.Memories, "a driver that lists none changes none")
	files.remove(paperMemoryFile)
	modes, err = d.Modes(t.Context(), paperAddress)
	require.NoError(t, err)
	assert.Equal(t, gpu.Modes{
		Compute: "SPX", Computes: []string{"SPX", "DPX", "QPX", "CPX"}, Memory: "NPS1", Memories: []string{"NPS1"},
		Legal: map[string][]string{"NPS1": {"SPX", "DPX", "QPX", "CPX"}},
	}, modes)
	require.NoError(t, d.SetMemoryPartition(t.Context(), "NPS1"))
	require.ErrorIs(t, d.SetMemoryPartition(t.Context(), "NPS4"), gpu.ErrNotSupported)

	files.remove(modeFile)
	modes, err = d.Modes(t.Context(), paperAddress)
	require.NoError(t, err)
	assert.Equal(t, gpu.Modes{}, modes)
	assert.ErrorContains(t, d.SetMemoryPartition(t.Context(), "NPS1"), "no AMD GPU of this machine has modes")
	assert.ErrorContains(t, d.SetComputePartition(t.Context(), paperAddress, "CPX"), "cannot be cut")
	files.refuse("stat "+paperMemoryFile, unix.EPERM)
	files.set(modeFile, "SPX\n")
	_, err = d.Modes(t.Context(), paperAddress)
	assert.ErrorContains(t, err, "is being reset")
}
