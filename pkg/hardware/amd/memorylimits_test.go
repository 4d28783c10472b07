package amd_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware/amd"
	"github.com/tranche-dev/tranche/pkg/hardware/amd/sysfs"
	"github.com/tranche-dev/tranche/test/amdtest"
	"github.com/tranche-dev/tranche/test/simulator/amdgpu"
)

// group makes a control group, with the controller dmem if it is enabled for it.
func group(t *testing.T, enabled bool) string {
	t.Helper()
	folder := t.TempDir()
	if enabled {
		require.NoError(t, os.WriteFile(filepath.Join(folder, "dmem.max"), nil, 0o600))
	}
	return folder
}

func TestMemoryLimits(t *testing.T) {
	m := simulated(t, "mi300x8")
	kernel := m.files.Files.(*amdgpu.Kernel)
	const first, second = "0000:05:00.0", "0000:26:00.0"
	pod := group(t, true)
	limit := func(pci string) gpu.MemoryLimit {
		t.Helper()
		limit, err := m.MemoryLimit(t.Context(), pci, pod)
		require.NoError(t, err)
		return limit
	}
	assert.Zero(t, limit(first))
	require.NoError(t, m.SetMemoryLimit(t.Context(), first, pod, gpu.MemoryLimit{Bytes: 2 * gib, Guaranteed: gib}))
	require.NoError(t, kernel.Allocate(pod, first, gib))
	require.ErrorIs(t, kernel.Allocate(pod, first, gib+1), amdgpu.ErrOutOfMemory)
	assert.Equal(t, gpu.MemoryLimit{Bytes: 2 * gib, Used: gib}, limit(first), "nothing is guaranteed")
	assert.Zero(t, limit(second), "of the other GPU")

	require.NoError(t, m.SetMemoryLimit(t.Context(), first, pod, gpu.MemoryLimit{Bytes: gib / 2}), "the kernel does not tell")
	assert.EqualValues(t, 2*gib, limit(first).Bytes)
	require.NoError(t, m.SetMemoryLimit(t.Context(), first, pod, gpu.MemoryLimit{}))
	require.NoError(t, kernel.Allocate(pod, first, 2*gib))

	require.NoError(t, m.SetMemoryLimit(t.Context(), first, pod, gpu.MemoryLimit{Bytes: 8 * gib}))
	require.NoError(t, amdgpu.ReloadDriver(m.root))
	assert.Zero(t, limit(first), "the driver was loaded again")
}

func TestMemoryLimitsRefuse(t *testing.T) {
	files := amdtest.NewTree(amdtest.MI300XSPX())
	d, err := amd.New(amd.Config{Files: files})
	require.NoError(t, err)
	_, err = d.MemoryLimit(t.Context(), first, group(t, true))
	require.ErrorIs(t, err, gpu.ErrNotSupported, "the host's control groups")

	set := func(m *machine, pci, group string) error {
		_, err := m.MemoryLimit(t.Context(), pci, group)
		require.Error(t, err)
		return m.SetMemoryLimit(t.Context(), pci, group, gpu.MemoryLimit{Bytes: gib})
	}
	m := simulated(t, "mi300x8")
	err = set(m, "0000:05:00.0", group(t, false))
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.ErrorContains(t, err, "the kernel's controller dmem (Linux 6.14 or later, CONFIG_CGROUP_DMEM) is not enabled for the control group")
	require.Error(t, set(m, "0000:ff:00.0", group(t, true)), "no such GPU")
	apu := simulated(t, "mi300a4")
	gpus, err := apu.Inventory(t.Context())
	require.NoError(t, err)
	require.ErrorIs(t, set(apu, gpus[0].PCIAddress, group(t, true)), gpu.ErrNotSupported, "its memory is the host's")
}

// dmem is the controller of a kernel that answers in another way.
type dmem struct {
	sysfs.Files
	max, current string
	onWrite      error
}

func (d *dmem) ReadFile(name string) ([]byte, error) {
	value := d.max
	if filepath.Base(name) == "dmem.current" {
		value = d.current
	}
	return []byte("drm/0000:05:00.0/vram0 7\ndrm/0000:05:00.0/vram " + value + "\n"), nil
}

func (d *dmem) WriteFile(string, []byte) error { return d.onWrite }

func TestMemoryLimitsOfOtherKernels(t *testing.T) {
	m := simulated(t, "mi300x8")
	for name, tt := range map[string]struct {
		dmem     dmem
		err, set string
	}{
		"refuses less than is used": {dmem{max: "max", current: "9", onWrite: unix.EBUSY}, "", "write drm/0000:05:00.0/vram 1073741824 to /group/dmem.max: device or resource busy"},
		"no limit that is a number": {dmem{max: "much"}, `dmem.max of control group /group has "much", which is not a number of bytes`, "not a number"},
		"no usage":                  {dmem{max: "9"}, `dmem.current of control group /group has "", which is not a number of bytes`, ""},
		"less than nothing":         {dmem{max: "-9"}, `has "-9", which is not a number of bytes`, "not a number"},
	} {
		t.Run(name, func(t *testing.T) {
			driver, err := amd.New(amd.Config{Files: m.files, Groups: &tt.dmem, HostDevRoot: m.root})
			require.NoError(t, err)
			_, err = driver.MemoryLimit(t.Context(), "0000:05:00.0", "/group")
			failsWith(t, err, tt.err)
			failsWith(t, driver.SetMemoryLimit(t.Context(), "0000:05:00.0", "/group", gpu.MemoryLimit{Bytes: gib}), tt.set)
		})
	}
}

func failsWith(t *testing.T, err error, part string) {
	t.Helper()
	if part == "" {
		require.NoError(t, err)
		return
	}
	require.ErrorContains(t, err, part)
}
