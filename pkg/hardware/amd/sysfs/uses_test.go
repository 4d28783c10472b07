package sysfs_test

import (
	"fmt"
	"path"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/tranche-dev/tranche/pkg/hardware/amd/sysfs"
	"github.com/tranche-dev/tranche/test/amdtest"
)

// uses reads what is used of the nodes 1 and 2.
func uses(t *testing.T, files *amdtest.Tree) (all []sysfs.Use, told bool) {
	t.Helper()
	all, err := sysfs.InTask(t.Context(), files, func(task *sysfs.Task) (all []sysfs.Use, err error) {
		all, told, err = sysfs.Uses(task, []string{"1", "2"})
		return all, err
	})
	require.NoError(t, err)
	return all, told
}

func file(pid int, name string) string { return path.Join(sysfs.ProcessDir, fmt.Sprint(pid), name) }

// What cannot be read of one process takes away no other: it has ended, or the chip does not report
// its compute units.
func TestUses(t *testing.T) {
	files := amdtest.NewTree()
	for pid := 1; pid <= 5; pid++ {
		files.Set(file(pid, "vram_1"), "100")
		files.Set(file(pid, "stats_1/cu_occupancy"), "10")
	}
	files.Set(file(1, "vram_2"), "0")
	files.Set(file(1, "vram_3"), "300")
	files.Refuse("read "+file(2, "vram_1"), unix.ESRCH)
	files.Refuse("read "+file(3, "vram_1"), unix.ENODEV)
	files.Refuse("read "+file(4, "stats_1/cu_occupancy"), unix.EINVAL)
	files.Remove(file(5, "stats_1"))
	all, told := uses(t, files)
	assert.True(t, told)
	assert.Equal(t, []sysfs.Use{
		{PID: 1, GPUID: "1", Memory: 100, ComputeUnits: 10}, {PID: 4, GPUID: "1", Memory: 100, ComputeUnits: -1}, {PID: 5, GPUID: "1", Memory: 100, ComputeUnits: -1},
	}, all)
}

// Many processes are not read, because claims on the GPU would wait.
func TestUsesOfManyProcesses(t *testing.T) {
	files := amdtest.NewTree()
	for pid := 1; pid <= sysfs.MaxProcesses; pid++ {
		files.Set(file(pid, "vram_1"), "100")
	}
	all, told := uses(t, files)
	assert.True(t, told)
	assert.Len(t, all, sysfs.MaxProcesses)
	files.Set(file(sysfs.MaxProcesses+1, "vram_2"), "100")
	files.OnRead = func(name string) { assert.Fail(t, "nothing is read", name) }
	all, told = uses(t, files)
	assert.False(t, told)
	assert.Empty(t, all)
}

// What cannot be read and is no end of a process is not taken for it.
func TestUsesThatCannotBeRead(t *testing.T) {
	tree := func() *amdtest.Tree {
		files := amdtest.NewTree()
		files.Set(file(1, "vram_1"), "100")
		files.Set(file(1, "stats_1/cu_occupancy"), "10")
		return files
	}
	assert.Empty(t, amdtest.Optional(t, tree, func(files sysfs.Files) error {
		_, err := sysfs.InTask(t.Context(), files, func(task *sysfs.Task) ([]sysfs.Use, error) {
			all, _, err := sysfs.Uses(task, []string{"1"})
			return all, err
		})
		return err
	}))
}
