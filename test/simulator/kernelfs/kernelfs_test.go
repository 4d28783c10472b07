package kernelfs

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware/amd"
	"github.com/tranche-dev/tranche/pkg/hardware/amd/sysfs"
	"github.com/tranche-dev/tranche/pkg/publish/models"
	"github.com/tranche-dev/tranche/test/amdtest"
	"github.com/tranche-dev/tranche/test/simulator/amdgpu"
)

// mounted is a machine with a simulated kernel, whose files are at its root.
func mounted(t *testing.T, inventory string) (*amdgpu.Kernel, string) {
	t.Helper()
	if _, err := os.Stat("/dev/fuse"); err != nil || os.Geteuid() != 0 {
		t.Skip("needs root and /dev/fuse")
	}
	inv, err := models.LoadInventory(inventory)
	require.NoError(t, err)
	root := t.TempDir()
	kernel, err := amdgpu.New(inv, amdgpu.Options{Root: root, Seed: "node", Sleep: func(time.Duration) {}, Logf: t.Logf})
	require.NoError(t, err)
	sys := filepath.Join(root, "sys")
	require.NoError(t, os.MkdirAll(filepath.Join(sys, "module/nvidia"), 0o750))
	require.NoError(t, os.WriteFile(filepath.Join(sys, "module/nvidia/version"), []byte("580.159.04\n"), 0o600))
	m, err := Mount(kernel, "/sys", sys)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, m.Close()) })
	return kernel, root
}

// Every file says through the file system what the kernel has in it.
func TestSameFiles(t *testing.T) {
	kernel, root := mounted(t, "mi300x8")
	files := sysfs.Host(root)
	var walk func(dir string) int
	walk = func(dir string) (count int) {
		names, err := kernel.ReadDir(dir)
		require.NoError(t, err)
		for _, name := range names {
			name = dir + "/" + name
			info, link, err := kernel.Lstat(name)
			require.NoError(t, err)
			shown, err := os.Lstat(root + name)
			require.NoError(t, err)
			assert.Equal(t, info.Mode, shown.Mode(), name)
			count++
			switch {
			case link != "":
				real, err := files.EvalSymlinks(name)
				require.NoError(t, err)
				want, err := kernel.EvalSymlinks(name)
				require.NoError(t, err)
				assert.Equal(t, want, real, name)
			case info.Mode.IsDir():
				stat, err := files.Stat(name)
				require.NoError(t, err)
				assert.Equal(t, info.Inode, stat.Inode, name)
				count += walk(name)
			default:
				want, wantErr := kernel.ReadFile(name)
				data, err := files.ReadFile(name)
				assert.Equal(t, string(want), string(data), name)
				assert.Equal(t, errnoOf(wantErr), errnoOf(err), name)
			}
		}
		return count
	}
	assert.Greater(t, walk("/sys"), 500)

	// What another driver has in the same folder is there, too.
	data, err := os.ReadFile(filepath.Join(root, "sys/module/nvidia/version"))
	require.NoError(t, err)
	assert.Equal(t, "580.159.04\n", string(data))
	modules, err := files.ReadDir("/sys/module")
	require.NoError(t, err)
	assert.Equal(t, []string{"amdgpu", "nvidia"}, modules)
	added := filepath.Join(root, "sys/module/nvidia_uvm")
	require.NoError(t, os.Mkdir(added, 0o750))
	require.NoError(t, os.WriteFile(filepath.Join(added, "version"), []byte("1"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(added, "version"), []byte("22"), 0o600))
	require.NoError(t, os.Symlink("version", filepath.Join(added, "link")))
	require.NoError(t, os.Rename(added, added+".next"))
	data, err = os.ReadFile(filepath.Join(added+".next", "link"))
	require.NoError(t, err)
	assert.Equal(t, "22", string(data))
	require.NoError(t, os.RemoveAll(added+".next"))
	require.NoDirExists(t, added+".next")
	_, err = files.ReadFile("/sys/module/nothing/version")
	require.ErrorIs(t, err, os.ErrNotExist)
}

// The driver for real hardware works on it: it finds the GPUs, switches one, and is told why not.
func TestDriver(t *testing.T) {
	kernel, root := mounted(t, "mi300x8")
	require.NoError(t, os.MkdirAll(filepath.Join(root, "proc/sys/kernel/random"), 0o750))
	driver, err := amd.New(amd.Config{Files: sysfs.Host(root), HostDevRoot: root, Logger: testr.New(t)})
	require.NoError(t, err)
	require.NoError(t, driver.Open(t.Context()))
	t.Cleanup(func() { assert.NoError(t, driver.Close(t.Context())) })
	gpus, err := driver.Inventory(t.Context())
	require.NoError(t, err)
	inside, err := amd.New(amd.Config{Files: kernel, Logger: testr.New(t)})
	require.NoError(t, err)
	require.NoError(t, inside.Open(t.Context()))
	want, err := inside.Inventory(t.Context())
	require.NoError(t, err)
	assert.Equal(t, want, gpus)

	first := gpus[0]
	cpx := gpu.Placement{}
	for _, p := range first.Placements {
		if p.Profile == "cpx" {
			cpx = p
		}
	}
	made, err := driver.Create(t.Context(), cpx)
	require.NoError(t, err)
	assert.True(t, made.Is(cpx))
	live, err := driver.Live(t.Context(), first.PCIAddress)
	require.NoError(t, err)
	assert.Len(t, live, 8)

	mode := filepath.Join(root, "sys/bus/pci/devices", first.PCIAddress, "current_compute_partition")
	require.ErrorIs(t, os.WriteFile(mode, []byte("LPX"), 0), unix.EINVAL)
	require.ErrorIs(t, os.WriteFile(filepath.Join(filepath.Dir(mode), "numa_node"), []byte("1"), 0), unix.EACCES)
	require.NoError(t, amdgpu.SetFaults(root, amdgpu.Faults{Processes: []amdgpu.Process{{GPUs: []string{first.PCIAddress}, PID: 4711}}}))
	require.ErrorIs(t, os.WriteFile(mode, []byte("SPX"), 0), unix.EBUSY)
	require.NoError(t, amdgpu.SetFaults(root, amdgpu.Faults{}))
	require.NoError(t, os.WriteFile(mode, []byte("SPX"), 0))
	data, err := os.ReadFile(mode)
	require.NoError(t, err)
	assert.Equal(t, "SPX\n", string(data))
}

// A write that hangs in the kernel keeps its process, and nobody else: the driver gives up waiting, and
// everything else can be read meanwhile.
func TestWriteThatHangs(t *testing.T) {
	kernel, root := mounted(t, "mi300x8")
	driver, err := amd.New(amd.Config{Files: sysfs.Host(root), HostDevRoot: root, Logger: testr.New(t)})
	require.NoError(t, err)
	require.NoError(t, driver.Open(t.Context()))
	t.Cleanup(func() { assert.NoError(t, driver.Close(context.WithoutCancel(t.Context()))) })
	gpus, err := driver.Inventory(t.Context())
	require.NoError(t, err)
	hangs, answers := gpus[0], gpus[1]
	require.NoError(t, amdgpu.SetFaults(root, amdgpu.Faults{Writes: []amdgpu.WriteFault{{GPU: hangs.PCIAddress, File: sysfs.ComputeFile, Hang: "before"}}}))

	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	_, err = driver.Create(ctx, amdtest.Placement(t, hangs, "cpx-0"))
	require.ErrorIs(t, err, context.DeadlineExceeded)
	_, err = driver.Create(t.Context(), amdtest.Placement(t, answers, "cpx-0"))
	require.NoError(t, err)

	require.NoError(t, amdgpu.SetFaults(root, amdgpu.Faults{}))
	mode := "/sys/bus/pci/devices/" + hangs.PCIAddress + "/" + sysfs.ComputeFile
	require.Eventually(t, func() bool {
		data, err := kernel.ReadFile(mode)
		return err == nil && string(data) == "CPX\n"
	}, 10*time.Second, 10*time.Millisecond, "the write goes on when the kernel does")
}
