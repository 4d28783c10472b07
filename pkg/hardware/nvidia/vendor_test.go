package nvidia

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware"
	"github.com/tranche-dev/tranche/pkg/hardware/nvidia/session"
	"github.com/tranche-dev/tranche/test/nvidiatest"
)

func TestInstallHook(t *testing.T) {
	dir := t.TempDir()
	v := Vendor{CDIHook: filepath.Join(dir, "hook"), CDIHookPath: filepath.Join(dir, "host/nvidia-cdi-hook")}
	err := v.installHook()
	require.ErrorContains(t, err, "read the program for CDI hooks")

	require.NoError(t, os.WriteFile(v.CDIHook, []byte("one"), 0o600))
	err = v.installHook()
	require.ErrorContains(t, err, "install the program for CDI hooks on the host")

	require.NoError(t, os.MkdirAll(filepath.Dir(v.CDIHookPath), 0o750))
	path := v.CDIHookPath
	require.NoError(t, v.installHook())
	first, err := os.Stat(path)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o755), first.Mode().Perm())

	// The same again touches nothing: containers may be running it.
	err = v.installHook()
	require.NoError(t, err)
	again, err := os.Stat(path)
	require.NoError(t, err)
	assert.True(t, os.SameFile(first, again))

	// Another one replaces it in one step: who runs the old one is not
	// disturbed ("text file busy").
	running, err := os.Open(path)
	require.NoError(t, err)
	defer running.Close()
	require.NoError(t, os.WriteFile(v.CDIHook, []byte("two"), 0o600))
	err = v.installHook()
	require.NoError(t, err)
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, "two", string(data))
	old := make([]byte, 3)
	_, err = running.Read(old)
	require.NoError(t, err)
	assert.Equal(t, "one", string(old))
	entries, err := os.ReadDir(filepath.Dir(path))
	require.NoError(t, err)
	assert.Len(t, entries, 1)

	require.NoError(t, os.Remove(path))
	require.NoError(t, os.Mkdir(path, 0o700))
	err = v.installHook()
	require.ErrorContains(t, err, "install the program for CDI hooks on the host")
}

// A node without NVIDIA's driver is told so, and does not get NVIDIA's hook.
func TestOpenWithoutDriver(t *testing.T) {
	v := Vendor{HostRoot: t.TempDir(), CDIHook: "/does/not/exist", CDIHookPath: filepath.Join(t.TempDir(), "hook")}
	_, err := v.Open(t.Context())
	require.ErrorIs(t, err, hardware.ErrNoDriver)
	require.ErrorContains(t, err, "install the NVIDIA driver on this node")
	assert.NoFileExists(t, v.CDIHookPath)
}

// What can be used of a driver that cannot be opened is its identity: it tells when there is another.
func TestUse(t *testing.T) {
	nvidiatest.InProcess(t)
	dir := t.TempDir()
	hook := filepath.Join(dir, "hook")
	require.NoError(t, os.WriteFile(hook, []byte("hook"), 0o600))
	v := Vendor{CDIHook: hook, CDIHookPath: filepath.Join(dir, "installed")}
	m := simulated(t, "l4x4")
	id, err := m.LoadID()
	require.NoError(t, err)
	config := m.cfg
	config.HostDriverRoot = "/host/driver"

	opened, err := v.Use(t.Context(), config)
	require.NoError(t, err)
	assert.Equal(t, id, opened.LoadID)
	assert.Equal(t, "/host/driver", opened.ProgramRoot)
	gpus, err := opened.Driver.Inventory(t.Context())
	require.NoError(t, err)
	assert.Len(t, gpus, 4)
	assert.FileExists(t, v.CDIHookPath)
	require.NoError(t, opened.Driver.Release(t.Context()))
	_, err = opened.Driver.Inventory(t.Context())
	require.ErrorIs(t, err, session.ErrReleased)
	require.NoError(t, opened.Driver.Close(t.Context()))

	unusable := func(opened *hardware.Opened, err error, want string) {
		t.Helper()
		require.ErrorContains(t, err, want)
		require.NotErrorIs(t, err, hardware.ErrNoDriver)
		assert.Nil(t, opened.Driver)
		assert.Equal(t, id, opened.LoadID)
		again, err := opened.ReadLoadID()
		require.NoError(t, err)
		assert.Equal(t, id, again)
	}
	opened, err = Vendor{CDIHook: filepath.Join(dir, "none")}.Use(t.Context(), config)
	unusable(opened, err, "read the program for CDI hooks")
	opened, err = WithoutLibrary(config.ProcRoot, config.SysRoot, errors.New("no library"))
	unusable(opened, err, "its kernel module is loaded, but there is no library")
	m.Fail("Init", nvml.ERROR_LIB_RM_VERSION_MISMATCH, 0)
	opened, err = v.Use(t.Context(), config)
	unusable(opened, err, "Init")

	config.ProcRoot, config.SysRoot = dir, dir
	_, err = v.Use(t.Context(), config)
	require.ErrorIs(t, err, hardware.ErrNoDriver)
	_, err = WithoutLibrary(dir, dir, errors.New("no library"))
	require.ErrorIs(t, err, hardware.ErrNoDriver)
	assert.Equal(t, gpu.NVIDIA, v.Name())
	assert.Equal(t, []string{"gpu.nvidia.com"}, v.OwnerDRADrivers())
	assert.Equal(t, []string{migManagerProgram}, v.OwnerPrograms())
}
