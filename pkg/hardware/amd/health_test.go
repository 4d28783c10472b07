package amd

import (
	"context"
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

const paperAddress = "0000:05:00.0"

// troubles are ways in which a GPU is not well.
var troubles = []struct {
	name   string
	breaks func(*amdtest.Tree)
	want   string
	cause  gpu.Cause
	is     error
}{
	{"in reset", func(f *amdtest.Tree) {
		f.Refuse("read "+sysfs.DevicesDir+"/"+paperAddress+"/"+sysfs.ComputeFile, unix.EPERM)
	}, "GPU 0000:05:00.0 is being reset: it is asked again", gpu.CauseReset, unix.EPERM},
	{"gone from the bus", func(f *amdtest.Tree) { f.Remove(sysfs.DevicesDir + "/" + paperAddress) }, "is gone from the PCI bus", gpu.CauseLost, fs.ErrNotExist},
	{"let go by amdgpu", func(f *amdtest.Tree) {
		f.Remove(sysfs.DriverDirs[0] + "/" + paperAddress)
		f.Remove(sysfs.DriverDirs[1] + "/" + paperAddress)
	}, "amdgpu has let go of it", gpu.CauseLost, fs.ErrNotExist},
	{"does not answer", func(f *amdtest.Tree) {
		f.Refuse("read "+sysfs.DevicesDir+"/"+paperAddress+"/"+sysfs.ComputeFile, unix.ENODEV)
	}, "is gone from the PCI bus", gpu.CauseLost, unix.ENODEV},
	{"all KFD nodes missing", func(f *amdtest.Tree) { f.Remove(sysfs.NodesDir + "/2"); f.Set(sysfs.TopologyDir+"/generation_id", "2") }, "has no node in KFD's topology", gpu.CauseMissing, nil},
	{"uncorrected errors", func(f *amdtest.Tree) {
		f.Set(sysfs.DevicesDir+"/"+paperAddress+"/ras/umc_err_count", "ue: 2\nce: 7\nde: 1\n")
		f.Set(sysfs.DevicesDir+"/"+paperAddress+"/ras/gfx_err_count", "ue: 1\nce: 0\n")
		f.Set(sysfs.DevicesDir+"/"+paperAddress+"/ras/sdma_err_count", "ue: 0\nce: 3\n")
	}, "has counted 3 errors that could not be corrected (gfx 1, umc 2)", gpu.CauseErrors, nil},
}

func TestCheckHealth(t *testing.T) {
	for _, trouble := range troubles {
		t.Run(trouble.name, func(t *testing.T) {
			files, d := onPaper(t, amdtest.MI300XSPX())
			require.NoError(t, d.CheckHealth(t.Context(), paperAddress))
			trouble.breaks(files)
			err := d.CheckHealth(t.Context(), paperAddress)
			assert.ErrorContains(t, err, trouble.want)
			var health *sysfs.HealthError
			require.ErrorAs(t, err, &health)
			assert.NotEmpty(t, health.Cure)
			assert.Equal(t, trouble.cause, gpu.CauseOf(err))
			if trouble.is != nil {
				assert.ErrorIs(t, err, trouble.is)
			}
		})
	}
}

// A GPU with corrected errors, or that cannot be asked for them, is healthy.
func TestErrorsThatDoNotCount(t *testing.T) {
	files, d := onPaper(t, amdtest.MI300XSPX())
	dir := sysfs.DevicesDir + "/" + paperAddress + "/ras/"
	files.Set(dir+"umc_err_count", "ue: 0\nce: 7\n")
	files.Set(dir+"mca_err_count", "Query currently inaccessible\n")
	files.Set(dir+"features", "feature mask: 0x1\n")
	files.Set(dir+"gpu_vram_bad_pages", "ue: 4\n")
	assert.NoError(t, d.CheckHealth(t.Context(), paperAddress))
}

func FuzzParseUncorrected(f *testing.F) {
	for _, seed := range []string{"ue: 0\nce: 1\n", "ue: 3\nce: 0\nde: 1", "Query currently inaccessible", "ue: -1", "ue:99999999999999999999"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		require.Less(t, parseErrors(text, "ue"), uint64(1)<<63)
		require.EqualValues(t, 5, parseErrors("ue: 5\n"+text, "ue"))
	})
}

func TestRecovered(t *testing.T) {
	files, d := onPaper(t, amdtest.MI300XSPX())
	over := func(e gpu.HealthEvent) (bool, error) {
		e.PCIAddress = paperAddress
		return d.Recovered(t.Context(), e)
	}
	file := sysfs.DevicesDir + "/" + paperAddress + "/ras/umc_err_count"
	files.Set(file, "ue: 1\nce: 0\n")
	ok, err := over(gpu.HealthEvent{Fatal: true})
	assert.False(t, ok)
	require.ErrorContains(t, err, "umc 1")
	ok, err = over(gpu.HealthEvent{})
	assert.True(t, ok && err == nil, "nothing was fatal")
	files.Set(file, "ue: 0\nce: 0\n")
	ok, err = over(gpu.HealthEvent{Fatal: true})
	assert.True(t, ok && err == nil)
}

// Every trouble is reported within 10 s, once, and again when it comes back.
func TestWatchHealth(t *testing.T) {
	for _, trouble := range troubles {
		t.Run(trouble.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				files, d := onPaper(t, amdtest.MI300XSPX())
				inventoryOf(t, d)
				ctx, cancel := context.WithCancel(t.Context())
				var events []gpu.HealthEvent
				done := make(chan error)
				go func() { done <- d.WatchHealth(ctx, func(e gpu.HealthEvent) { events = append(events, e) }) }()
				within := func() int {
					time.Sleep(10 * time.Second)
					synctest.Wait()
					return len(events)
				}
				assert.Zero(t, within())
				trouble.breaks(files)
				require.Equal(t, 1, within())
				assert.Equal(t, 1, within(), "it is said once")
				e := events[0]
				assert.Equal(t, paperAddress, e.PCIAddress)
				assert.True(t, e.Fatal)
				assert.Contains(t, e.Message, trouble.want)
				assert.Equal(t, trouble.cause, e.Cause)
				assert.NotEmpty(t, e.LoadID)
				over, err := d.Recovered(t.Context(), e)
				assert.False(t, over)
				assert.Error(t, err)

				fresh := amdtest.NewTree()
				fresh.Add(amdtest.MI300XSPX())
				files.Mu.Lock()
				files.Files, files.Fails = fresh.Files, map[string]error{}
				files.Mu.Unlock()
				assert.Equal(t, 1, within())
				over, err = d.Recovered(t.Context(), e)
				assert.True(t, over)
				assert.NoError(t, err)
				trouble.breaks(files)
				assert.Equal(t, 2, within(), "it came back")
				cancel()
				assert.NoError(t, <-done)
			})
		})
	}
}

// A GPU whose files hang is no trouble that could be named, and holds up no other.
func TestWatchHealthWithAHungGPU(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		other := amdtest.MI308XCPX(1, 136)
		files, d := onPaper(t, amdtest.MI300XSPX(), other)
		inventoryOf(t, d)
		release := make(chan struct{})
		files.OnRead = func(name string) {
			if name == sysfs.DevicesDir+"/"+paperAddress+"/"+sysfs.ComputeFile {
				<-release
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		var events []gpu.HealthEvent
		done := make(chan error)
		go func() { done <- d.WatchHealth(ctx, func(e gpu.HealthEvent) { events = append(events, e) }) }()
		files.Set(sysfs.DevicesDir+"/"+other.Address+"/ras/umc_err_count", "ue: 1\n")
		time.Sleep(10 * time.Second)
		synctest.Wait()
		cancel()
		require.NoError(t, <-done)
		close(release)
		require.Len(t, events, 1)
		assert.Equal(t, other.Address, events[0].PCIAddress)
		require.NoError(t, d.GateOf(paperAddress).Settle(t.Context()))
	})
}
