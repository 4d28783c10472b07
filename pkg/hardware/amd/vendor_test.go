package amd

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware"
	"github.com/tranche-dev/tranche/pkg/hardware/amd/sysfs"
	"github.com/tranche-dev/tranche/pkg/hardware/kmod"
	"github.com/tranche-dev/tranche/test/amdtest"
)

// A GPU with nothing but screens behind it is not ours.
func TestNoAMDGPUForUs(t *testing.T) {
	root := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(root, "sys/bus/pci/drivers/amdgpu"), 0o750))
	require.NoError(t, os.MkdirAll(filepath.Join(root, "sys/module/amdgpu"), 0o750))
	require.NoError(t, os.MkdirAll(filepath.Join(root, "proc/sys/kernel/random"), 0o750))
	require.NoError(t, os.WriteFile(filepath.Join(root, "proc/sys/kernel/random/boot_id"), []byte("x\n"), 0o600))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, v := range []Vendor{{HostRoot: root}, {HostRoot: t.TempDir(), MachineRoot: root}} {
		_, err := v.Open(ctx)
		require.ErrorIs(t, err, hardware.ErrNoDriver)
		require.ErrorContains(t, err, "no GPU that is made for computing")
	}
}

func TestUse(t *testing.T) {
	ctx := t.Context()
	marker := filepath.Join(t.TempDir(), "unloaded")
	open := func(v Vendor, change func(*amdtest.Tree)) (*hardware.Opened, error) {
		files := amdtest.NewTree(amdtest.MI300XSPX())
		if change != nil {
			change(files)
		}
		return v.Use(ctx, Config{Files: files}, kmod.Module{
			Run:       func(context.Context, string, ...string) ([]byte, error) { return nil, os.ErrPermission },
			ReadFile:  func(string) ([]byte, error) { return nil, os.ErrNotExist },
			LookPause: time.Nanosecond,
		})
	}
	opened, err := open(Vendor{Marker: marker}, nil)
	require.NoError(t, err)
	assert.Equal(t, "6c7d3b1e-0000-4000-8000-000000000001/4711/6.16.13", opened.LoadID)
	assert.Nil(t, opened.Resume, "it never unloads the driver")
	gpus, err := opened.Driver.Inventory(ctx)
	require.NoError(t, err)
	assert.Len(t, gpus, 1)

	opened, err = open(Vendor{Marker: marker, MemoryModes: true}, nil)
	require.NoError(t, err)
	require.NotNil(t, opened.Resume)
	require.NoError(t, opened.Resume(ctx), "nothing is unloaded")

	_, err = open(Vendor{Marker: marker}, func(files *amdtest.Tree) { files.Remove(sysfs.BootID) })
	require.ErrorIs(t, err, hardware.ErrNoDriver)
	_, err = open(Vendor{Marker: marker}, func(files *amdtest.Tree) {
		files.Remove(sysfs.DriverDirs[0])
		files.Remove(sysfs.DriverDirs[1])
	})
	require.ErrorIs(t, err, hardware.ErrNoDriver)
	opened, err = open(Vendor{Marker: marker}, func(files *amdtest.Tree) {
		files.Refuse("list "+sysfs.DevicesDir+"/0000:05:00.0/drm", os.ErrPermission)
	})
	require.NoError(t, err, "a GPU that cannot be read is one")
	assert.NotNil(t, opened.Driver)

	// An earlier process has unloaded the driver, and it cannot be loaded.
	require.NoError(t, os.WriteFile(marker, nil, 0o600))
	_, err = open(Vendor{Marker: marker, MemoryModes: true}, nil)
	require.ErrorIs(t, err, hardware.ErrNoDriver)
	_, err = open(Vendor{Marker: marker}, nil)
	require.NoError(t, err, "who never unloads it leaves the mark alone")
}

func TestVendor(t *testing.T) {
	v := Vendor{}
	assert.Equal(t, gpu.AMD, v.Name())
	assert.Equal(t, []string{"gpu.amd.com"}, v.OwnerDRADrivers())
	assert.Equal(t, []string{configManagerProgram}, v.OwnerPrograms())
}
