package sysfs

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestHost(t *testing.T) {
	root := t.TempDir()
	write := func(name, text string) {
		require.NoError(t, os.MkdirAll(filepath.Join(root, filepath.Dir(name)), 0o750))
		require.NoError(t, os.WriteFile(filepath.Join(root, name), []byte(text), 0o600))
	}
	write("/sys/devices/pci0000:00/0000:05:00.0/current_compute_partition", "CPX, longer than what is written\n")
	write("/sys/devices/pci0000:00/0000:05:00.0/numa_node", "1\n")
	require.NoError(t, os.MkdirAll(filepath.Join(root, "sys/bus/pci/devices"), 0o750))
	require.NoError(t, os.Symlink("../../../devices/pci0000:00/0000:05:00.0", filepath.Join(root, "sys/bus/pci/devices/0000:05:00.0")))

	for _, files := range []Files{Host(root), Host(root + "/")} {
		dir := "/sys/bus/pci/devices/0000:05:00.0"
		path, err := files.EvalSymlinks(dir)
		require.NoError(t, err)
		assert.Equal(t, "/sys/devices/pci0000:00/0000:05:00.0", path, "by the host's name")
		names, err := files.ReadDir(dir)
		require.NoError(t, err)
		assert.Equal(t, []string{"current_compute_partition", "numa_node"}, names)
		require.NoError(t, files.WriteFile(dir+"/current_compute_partition", []byte("SPX")))
		data, err := files.ReadFile(dir + "/current_compute_partition")
		require.NoError(t, err)
		assert.Equal(t, "SPX, longer than what is written\n", string(data), "sysfs files are not cut")

		a, err := files.Stat(dir)
		require.NoError(t, err)
		b, err := files.Stat(path)
		require.NoError(t, err)
		assert.Equal(t, a, b)
		assert.NotZero(t, a.Inode)
		assert.True(t, a.Mode.IsDir())

		for _, err := range []error{
			files.WriteFile(dir+"/new", nil),
			third(files.ReadFile(dir + "/new")), third(files.ReadDir(dir + "/new")),
			third(files.EvalSymlinks(dir + "/new")), third(files.Stat(dir + "/new")),
		} {
			assert.ErrorIs(t, err, fs.ErrNotExist, "nothing is created")
		}
	}
}

func third[T any](_ T, err error) error { return err }

// The kernel's answer to a write comes out as its number.
func TestHostTellsTheKernelsErrors(t *testing.T) {
	err := Host("/").WriteFile("/dev/full", []byte("CPX"))
	require.ErrorIs(t, err, unix.ENOSPC)
	var path *fs.PathError
	require.ErrorAs(t, err, &path)
	assert.Equal(t, "/dev/full", path.Path)

	info, err := Host("").Stat("/dev/null")
	require.NoError(t, err)
	assert.NotZero(t, info.Mode&fs.ModeCharDevice)
	assert.EqualValues(t, 1, info.Major)
	assert.EqualValues(t, 3, info.Minor)
}

// A write is one call to the kernel, whatever the size: a pipe that is written in
// pieces would give the first of them.
func TestHostWritesInOneCall(t *testing.T) {
	name := filepath.Join(t.TempDir(), "socket")
	require.NoError(t, unix.Mkfifo(name, 0o600))
	read, err := os.OpenFile(name, os.O_RDWR, 0)
	require.NoError(t, err)
	defer read.Close()
	require.NoError(t, Host("/").WriteFile(name, []byte("CPX")))
	buffer := make([]byte, 100)
	n, err := read.Read(buffer)
	require.NoError(t, err)
	assert.Equal(t, "CPX", string(buffer[:n]))
}
