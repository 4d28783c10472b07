package sysfs_test

import (
	"io/fs"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/pkg/hardware/amd/sysfs"
	"github.com/tranche-dev/tranche/test/amdtest"
)

func TestLoadID(t *testing.T) {
	files, m := machineOf(t, amdtest.MI300XSPX())
	id := func() string {
		id, err := m.LoadID()
		require.NoError(t, err)
		return id
	}
	first := id()
	assert.Equal(t, "6c7d3b1e-0000-4000-8000-000000000001/4711/6.16.13", first)
	assert.Equal(t, first, id())

	files.Remove(sysfs.ModuleDir + "/version")
	files.Set(sysfs.ModuleDir+"/srcversion", "ABCDEF0123456789ABCDEF0\n")
	assert.Equal(t, "6c7d3b1e-0000-4000-8000-000000000001/4711/ABCDEF0123456789ABCDEF0", id(), "the module that comes with the kernel")
	files.Remove(sysfs.ModuleDir + "/srcversion")
	assert.Equal(t, "6c7d3b1e-0000-4000-8000-000000000001/4711", id())
	files.Infos[sysfs.ModuleDir] = sysfs.Info{Inode: 4712}
	assert.Equal(t, "6c7d3b1e-0000-4000-8000-000000000001/4712", id(), "reloaded")

	files.Fails["stat "+sysfs.ModuleDir] = fs.ErrNotExist
	_, err := m.LoadID()
	require.ErrorIs(t, err, fs.ErrNotExist)
	assert.ErrorContains(t, err, "is amdgpu loaded?")
	files.Remove(sysfs.BootID)
	_, err = m.LoadID()
	assert.EqualError(t, err, "identity of the driver load: is amdgpu loaded? amdgpu's module: read "+sysfs.BootID+": file does not exist")
}
