package amd

import (
	"context"
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

var modeFile = sysfs.DevicesDir + "/" + paperAddress + "/" + sysfs.ComputeFile

func paperPlacement(profile string, index int) gpu.Placement {
	p := gpu.Placement{GPU: paperAddress, Type: gpu.TypeXCP, Profile: profile, Start: index}
	if profile == "spx" {
		p.Type = gpu.TypeGPU
	}
	return p
}

// obey makes the tree react to a write of the mode as the kernel does.
func obey(files *amdtest.Tree) {
	files.OnWrite = func(name, text string) error {
		if name == modeFile {
			files.Replace(map[string]amdtest.GPU{"SPX": amdtest.MI300XSPX(), "DPX": amdtest.MI300XDPX(), "CPX": amdtest.MI300XCPX()}[text])
		}
		return nil
	}
}

func TestCreateSwitchesOnce(t *testing.T) {
	files, d := onPaper(t, amdtest.MI300XSPX())
	obey(files)
	part, err := d.Create(t.Context(), paperPlacement("cpx", 7))
	require.NoError(t, err)
	assert.Equal(t, gpu.Partition{GPU: paperAddress, Type: gpu.TypeXCP, Profile: "cpx", Start: 7, Complete: true, ID: "renderD135"}, part)
	assert.True(t, part.Is(paperPlacement("cpx", 7)))
	_, err = d.Create(t.Context(), paperPlacement("cpx", 0))
	require.NoError(t, err)
	assert.Equal(t, []string{"CPX > " + modeFile}, files.Writes, "the second one finds the mode live")

	require.NoError(t, d.Destroy(t.Context(), paperPlacement("cpx", 7)))
	assert.Len(t, files.Writes, 1, "the mode stays")
	whole, err := d.Create(t.Context(), paperPlacement("spx", 0))
	require.NoError(t, err)
	assert.Equal(t, gpu.Partition{GPU: paperAddress, Type: gpu.TypeGPU, Profile: "spx", UUID: "GPU-e3a9f00d12345678", Complete: true, ID: "renderD128"}, whole)
	assert.Equal(t, "SPX > "+modeFile, files.Writes[1])

	_, d = onPaper(t, plain())
	whole, err = d.Create(t.Context(), gpu.Placement{GPU: paperAddress, Type: gpu.TypeGPU})
	require.NoError(t, err)
	assert.Equal(t, gpu.Partition{GPU: paperAddress, Type: gpu.TypeGPU, UUID: "GPU-e3a9f00d12345678", Complete: true, ID: "renderD128"}, whole)
}

// plain is a GPU without modes.
func plain() amdtest.GPU {
	g := amdtest.MI300XSPX()
	g.Compute, g.Memory, g.Available, g.Device = "", "", "", "0x740f"
	return g
}

func TestCreateOfWhatIsNotAMDs(t *testing.T) {
	_, d := onPaper(t, amdtest.MI300XSPX())
	for _, p := range []gpu.Placement{
		{GPU: paperAddress, Type: gpu.TypeMIG, Profile: "1g.10gb"},
		{GPU: paperAddress, Type: gpu.TypeXCP, Profile: "spx"},
		{GPU: paperAddress, Type: gpu.TypeGPU, Profile: "cpx"},
		{GPU: paperAddress, Type: gpu.TypeXCP, Profile: "octo"},
	} {
		_, err := d.Create(t.Context(), p)
		assert.ErrorContains(t, err, "are not AMD's", p.Profile)
		_, err = d.Edits(t.Context(), p)
		assert.ErrorContains(t, err, "are not AMD's", p.Profile)
	}
	_, err := d.Create(t.Context(), gpu.Placement{GPU: paperAddress, Type: gpu.TypeGPU})
	assert.Error(t, err, "a GPU that has modes is asked for by one")
	_, err = d.Create(t.Context(), paperPlacement("cpx", 8))
	assert.Error(t, err)
}

// What the kernel answers to a write, in words: what was meant, and what to do.
func TestErrorsOfTheKernelSayWhatToDo(t *testing.T) {
	for _, test := range []struct {
		errno error
		want  []string
	}{
		{unix.EINVAL, []string{"GPU 0000:05:00.0: write CPX to " + modeFile, "invalid argument", "the memory mode was changed meanwhile"}},
		{unix.EPERM, []string{"GPU 0000:05:00.0 is being reset", "dmesg"}},
		{unix.EIO, []string{"write CPX to", "KFD could not be started again", "reboot the node"}},
		{unix.ENODEV, []string{"GPU 0000:05:00.0 is gone"}},
		{unix.EACCES, []string{"must run as root"}},
		{unix.EROFS, []string{"/sys writable"}},
		{unix.ENOMEM, []string{"write CPX to", "cannot allocate memory"}},
	} {
		files, d := onPaper(t, amdtest.MI300XSPX())
		files.Fails["write "+modeFile] = test.errno
		_, err := d.Create(t.Context(), paperPlacement("cpx", 0))
		require.ErrorIs(t, err, test.errno)
		assert.NotErrorIs(t, err, gpu.ErrInUse)
		for _, want := range test.want {
			assert.ErrorContains(t, err, want)
		}
		assert.Len(t, files.Writes, 1, "only a GPU in use is asked again")

		delete(files.Fails, "write "+modeFile)
		obey(files)
		_, err = d.Create(t.Context(), paperPlacement("cpx", 0))
		assert.NoError(t, err, "the next try works")
	}
}

// A GPU in use is asked again with growing pauses, until patience ends or the
// caller's time does.
func TestBusyGPUIsAskedAgain(t *testing.T) {
	for name, test := range map[string]struct {
		patience, deadline time.Duration
		free               int // the attempt that succeeds
		wantErr            bool
		writes             int
		took               time.Duration
	}{
		"free at the third":           {10 * time.Second, time.Minute, 3, false, 3, 750 * time.Millisecond},
		"patience ends":               {10 * time.Second, time.Minute, 99, true, 8, 9750 * time.Millisecond},
		"the caller's time ends":      {10 * time.Second, time.Second, 99, true, 3, 750 * time.Millisecond},
		"patience of our own default": {0, time.Minute, 99, true, 8, 9750 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				files := amdtest.NewTree()
				files.Add(amdtest.MI300XSPX())
				d, err := New(Config{Files: files, BusyPatience: test.patience})
				require.NoError(t, err)
				attempts := 0
				files.OnWrite = func(string, string) error {
					if attempts++; attempts < test.free {
						return unix.EBUSY
					}
					files.Replace(amdtest.MI300XCPX())
					return nil
				}
				ctx, cancel := context.WithTimeout(t.Context(), test.deadline)
				defer cancel()
				start := time.Now()
				_, err = d.Create(ctx, paperPlacement("cpx", 0))
				assert.Equal(t, test.took, time.Since(start))
				assert.Len(t, files.Writes, test.writes)
				assert.Equal(t, test.wantErr, err != nil)
				if test.wantErr {
					require.ErrorIs(t, err, gpu.ErrInUse)
					require.ErrorIs(t, err, unix.EBUSY)
					assert.ErrorContains(t, err, "GPU 0000:05:00.0 cannot be put into mode CPX: no process is seen to use KFD, so one has only just ended")
				}
			})
		})
	}
}

// A GPU that waits for a process to end is looked at all the same.
func TestLooksDoNotWaitForABusyGPU(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		files, d := onPaper(t, amdtest.MI300XSPX())
		d.cfg.BusyPatience = time.Minute
		files.Fails["write "+modeFile] = unix.EBUSY
		done := make(chan error)
		go func() {
			_, err := d.Create(t.Context(), paperPlacement("cpx", 0))
			done <- err
		}()
		time.Sleep(10 * time.Second)
		synctest.Wait()
		start := time.Now()
		inventoryOf(t, d)
		require.NoError(t, d.CheckHealth(t.Context(), paperAddress))
		_, err := d.Live(t.Context(), paperAddress)
		require.NoError(t, err)
		assert.Zero(t, time.Since(start))
		assert.ErrorIs(t, <-done, gpu.ErrInUse)
	})
}

func TestCallerThatGivesUpWhileAGPUIsBusy(t *testing.T) {
	files, d := onPaper(t, amdtest.MI300XSPX())
	d.cfg.BusyPatience = time.Hour
	ctx, cancel := context.WithCancel(t.Context())
	files.OnWrite = func(string, string) error { cancel(); return unix.EBUSY }
	_, err := d.Create(ctx, paperPlacement("cpx", 0))
	require.ErrorIs(t, err, context.Canceled)
	assert.ErrorContains(t, err, "wait until it can be put into mode CPX")
}

// The render node comes by way of udev, some time after the switch.
func TestRenderNodeThatComesLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		files, d := onPaper(t, amdtest.MI300XCPX())
		files.Remove("/dev/dri/renderD131")
		go func() {
			time.Sleep(5 * time.Second)
			files.Mu.Lock()
			defer files.Mu.Unlock()
			files.Device("/dev/dri/renderD131", 226, 131, 109)
		}()
		start := time.Now()
		_, err := d.Create(t.Context(), paperPlacement("cpx", 3))
		require.NoError(t, err)
		assert.InDelta(t, 5, time.Since(start).Seconds(), 0.1)

		files.Remove("/dev/dri/renderD131")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = d.Create(ctx, paperPlacement("cpx", 3))
		assert.ErrorContains(t, err, "GPU 0000:05:00.0: there is no device node /dev/dri/renderD131; is udev at work?")
	})
}

func TestRenderNodeOfAnotherDriver(t *testing.T) {
	files, d := onPaper(t, amdtest.MI300XCPX())
	for _, name := range []string{"amdgpu_xcp_3", "amdgpu_xcp.3"} {
		files.Remove(sysfs.PlatformDir + "/" + name)
	}
	p := paperPlacement("cpx", 3)
	_, err := d.Create(t.Context(), p)
	require.ErrorContains(t, err, "KFD node 5 names renderD131, which is none of amdgpu's render nodes")
	_, err = d.Edits(t.Context(), p)
	require.ErrorContains(t, err, "none of amdgpu's render nodes")
	files.Set(sysfs.PlatformDir+"/amdgpu_xcp.3/drm/renderD131/dev", "226:131\n")
	_, err = d.Create(t.Context(), p)
	assert.NoError(t, err, "some drivers name them with a dot")
}

func TestGPUThatSomebodyElseSwitchesMeanwhile(t *testing.T) {
	files, d := onPaper(t, amdtest.MI300XCPX())
	reads := 0
	files.OnRead = func(name string) {
		if name == modeFile {
			if reads++; reads == 2 {
				files.Set(modeFile, "SPX\n")
			}
		}
	}
	_, err := d.Create(t.Context(), paperPlacement("cpx", 0))
	assert.ErrorContains(t, err, "it was put into mode SPX by somebody else")
}

func TestWhoKeepsTheGPU(t *testing.T) {
	process := func(files *amdtest.Tree, pid, name string, gpuIDs ...string) {
		files.Set(sysfs.ProcessDir+"/"+pid+"/pasid", "32769\n")
		for _, id := range gpuIDs {
			files.Set(sysfs.ProcessDir+"/"+pid+"/vram_"+id, "4096\n")
		}
		if name != "" {
			files.Set("/proc/"+pid+"/comm", name+"\n")
		}
	}
	for name, test := range map[string]struct {
		start func(*amdtest.Tree)
		want  string
	}{
		"one on the GPU": {func(f *amdtest.Tree) { process(f, "4242", "python3", "24002"); process(f, "7", "gpuagent") },
			"cannot be put into mode CPX: process 4242 (python3) uses it; end or move them, and this is retried"},
		"two on the GPU": {func(f *amdtest.Tree) { process(f, "4242", "python3", "24002"); process(f, "17", "", "24001", "24002") },
			"processes 17, 4242 (python3) use it"},
		"one elsewhere": {func(f *amdtest.Tree) { process(f, "7", "gpuagent", "24999") },
			"nobody uses it, but this kernel switches no GPU while any process of the host uses KFD, and process 7 (gpuagent) does"},
		"many": {func(f *amdtest.Tree) {
			for _, pid := range []string{"1", "2", "3", "4", "5", "6", "7", "8", "9", "10"} {
				process(f, pid, "", "24002")
			}
		}, "processes 1, 2, 3, 4, 5, 6, 7, 8, and 2 more use it"},
	} {
		t.Run(name, func(t *testing.T) {
			files, d := onPaper(t, amdtest.MI300XSPX())
			test.start(files)
			files.Fails["write "+modeFile] = unix.EBUSY
			_, err := d.Create(t.Context(), paperPlacement("cpx", 0))
			require.ErrorIs(t, err, gpu.ErrInUse)
			assert.ErrorContains(t, err, test.want)
			assert.ErrorContains(t, err, "this is retried")
		})
	}
	files, d := onPaper(t, amdtest.MI300XSPX())
	files.Fails["write "+modeFile] = unix.EBUSY
	files.Fails["list "+sysfs.ProcessDir] = unix.EACCES
	_, err := d.Create(t.Context(), paperPlacement("cpx", 0))
	assert.ErrorIs(t, err, gpu.ErrInUse, "that nobody can be named changes nothing")
}
