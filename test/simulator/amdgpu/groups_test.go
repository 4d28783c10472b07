package amdgpu

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// The controller counts what the groups below have, keeps all to the limit, and forgets all when the
// driver is loaded again.
func TestGroups(t *testing.T) {
	const gib = 1 << 30
	k := machine(t, "mi300x8")
	files, root := k.Groups(), t.TempDir()
	pod := filepath.Join(root, "kubepods/pod")
	container, other := filepath.Join(pod, "container"), filepath.Join(root, "kubepods/other")
	for _, folder := range []string{container, other} {
		require.NoError(t, os.MkdirAll(folder, 0o750))
	}
	name := filepath.Join(pod, dmemMax)
	_, err := files.ReadFile(name)
	require.ErrorIs(t, err, fs.ErrNotExist, "the controller is not enabled")
	for _, folder := range []string{pod, other} {
		require.NoError(t, os.WriteFile(filepath.Join(folder, dmemMax), nil, 0o600))
	}
	_, err = files.ReadFile(filepath.Join(pod, "dmem.low"))
	require.ErrorIs(t, err, fs.ErrNotExist)

	pci, next := k.inventory.AMD[0].PCI, k.inventory.AMD[1].PCI
	limit := func(value string) error { return files.WriteFile(name, []byte(region(pci)+" "+value+"\n")) }
	says := func(folder, file, first string) {
		t.Helper()
		data, err := files.ReadFile(filepath.Join(folder, file))
		require.NoError(t, err)
		rest := map[string]string{dmemMax: noLimit, dmemCurrent: "0"}[file]
		assert.Contains(t, string(data), region(pci)+" "+first+"\n"+region(next)+" "+rest+"\n")
	}
	says(pod, dmemMax, noLimit)
	require.NoError(t, limit("2147483648"))
	says(pod, dmemMax, "2147483648")
	require.NoError(t, k.Allocate(container, pci, gib))
	require.ErrorIs(t, k.Allocate(pod, pci, gib+1), ErrOutOfMemory, "both together")
	require.NoError(t, k.Allocate(other, pci, 3*gib))
	require.NoError(t, k.Allocate(container, next, 3*gib))
	data, err := files.ReadFile(filepath.Join(pod, dmemCurrent))
	require.NoError(t, err)
	assert.Contains(t, string(data), region(pci)+" 1073741824\n"+region(next)+" 3221225472\n")
	require.NoError(t, limit("1024"))
	says(pod, dmemMax, "2147483648")

	for _, value := range []string{"", "much", "-1"} {
		require.ErrorIs(t, limit(value), unix.EINVAL, value)
	}
	require.ErrorIs(t, files.WriteFile(name, []byte("drm/0000:ff:00.0/vram 1")), unix.EINVAL)
	require.ErrorIs(t, files.WriteFile(filepath.Join(pod, dmemCurrent), []byte(region(pci)+" 1")), unix.EACCES)

	require.NoError(t, os.RemoveAll(other))
	require.NoError(t, os.MkdirAll(other, 0o750))
	require.NoError(t, os.WriteFile(filepath.Join(other, dmemMax), nil, 0o600))
	require.NoError(t, ReloadDriver(k.root))
	says(pod, dmemMax, noLimit)
	says(pod, dmemCurrent, "0")
	require.NoError(t, limit(noLimit))
}

// The memory of an APU is the host's.
func TestGroupsOfAPU(t *testing.T) {
	k, pod := machine(t, "mi300a4"), t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(pod, dmemMax), nil, 0o600))
	data, err := k.Groups().ReadFile(filepath.Join(pod, dmemMax))
	require.NoError(t, err)
	assert.Empty(t, data)
}
