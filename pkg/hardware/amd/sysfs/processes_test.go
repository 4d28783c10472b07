package sysfs_test

import (
	"fmt"
	"io/fs"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/tranche-dev/tranche/pkg/hardware/amd/sysfs"
	"github.com/tranche-dev/tranche/test/amdtest"
)

// program adds a process that uses KFD on the nodes with these gpu_ids.
func program(files *amdtest.Tree, pid int, name string, gpuIDs ...string) {
	files.Set(fmt.Sprintf("%s/%d/pasid", sysfs.ProcessDir, pid), "32768")
	for _, id := range gpuIDs {
		files.Set(fmt.Sprintf("%s/%d/vram_%s", sysfs.ProcessDir, pid, id), "0")
	}
	if name != "" {
		files.Set(fmt.Sprintf("/proc/%d/comm", pid), name+"\n")
	}
}

func TestProcesses(t *testing.T) {
	files := amdtest.NewTree(amdtest.MI300XSPX())
	of := func(gpuIDs ...string) (sysfs.Processes, error) {
		return sysfs.InTask(t.Context(), files, func(task *sysfs.Task) (sysfs.Processes, error) { return sysfs.ProcessesOf(task, gpuIDs) })
	}
	program(files, 9, "python", "24002")
	program(files, 10, "", "24002", "24010")
	program(files, 11, "rocminfo", "24010")
	files.Set(sysfs.ProcessDir+"/self/pasid", "1")
	found, err := of("24002", "24003")
	require.NoError(t, err)
	assert.Equal(t, "processes 9 (python), 10 use it", sysfs.Listed(found.OnGPU, "uses it", "use it"), "by number, not by text")
	assert.Equal(t, "process 11 (rocminfo) uses it", sysfs.Listed(found.Others, "uses it", "use it"))

	files.Refuse("list "+sysfs.ProcessDir+"/9", fs.ErrNotExist)
	found, err = of("24002")
	require.NoError(t, err)
	assert.Equal(t, "process 10 uses it", sysfs.Listed(found.OnGPU, "uses it", "use it"), "the other has ended")
	for _, call := range []string{"list " + sysfs.ProcessDir + "/9", "list " + sysfs.ProcessDir} {
		files.Refuse(call, unix.EIO)
		_, err = of("24002")
		assert.ErrorIs(t, err, unix.EIO, call)
	}
	files.Refuse("list "+sysfs.ProcessDir, fs.ErrNotExist)
	found, err = of("24002")
	require.NoError(t, err)
	assert.Empty(t, found, "KFD has no processes")
}

func TestListedNamesEight(t *testing.T) {
	var all []sysfs.Process
	for pid := 1; pid <= 10; pid++ {
		all = append(all, sysfs.Process{PID: pid})
	}
	assert.Equal(t, "processes 1, 2, 3, 4, 5, 6, 7, 8, and 2 more use it", sysfs.Listed(all, "uses it", "use it"))
	assert.Equal(t, "processes 1, 2, 3, 4, 5, 6, 7, 8 use it", sysfs.Listed(all[:8], "uses it", "use it"))
}

func TestUsers(t *testing.T) {
	const retried = "; once they have ended or moved, this is retried"
	open := func(f *amdtest.Tree, pid int, fd string, info sysfs.Info) {
		f.Set(fmt.Sprintf("/proc/%d/fd/%s", pid, fd), "")
		f.Infos[fmt.Sprintf("/proc/%d/fd/%s", pid, fd)] = info
		f.Set(fmt.Sprintf("/proc/%d/comm", pid), "Xorg")
	}
	node := func(major, minor uint32) sysfs.Info {
		return sysfs.Info{Mode: fs.ModeDevice | fs.ModeCharDevice, Major: major, Minor: minor}
	}
	for name, test := range map[string]struct {
		count  string
		change func(f *amdtest.Tree)
		want   string
	}{
		"nobody":                 {"0", nil, ""},
		"a driver without count": {"", nil, ""},
		"KFD's and a module": {"2", func(f *amdtest.Tree) {
			program(f, 7, "python", "24002")
			f.Set(sysfs.HoldersDir+"/amdxcp/", "")
			open(f, 9, "3", node(226, 128))
		}, "process 7 (python) uses KFD and the kernel module amdxcp uses it" + retried},
		"a module alone":                 {"1", func(f *amdtest.Tree) { f.Set(sysfs.HoldersDir+"/amdxcp/", "") }, "the kernel module amdxcp uses it" + retried},
		"KFD's, which are never counted": {"0", func(f *amdtest.Tree) { program(f, 7, "python", "24002") }, "process 7 (python) uses KFD" + retried},
		"who cannot be seen":             {"1", nil, "its count of users is 1; " + sysfs.UnknownUsers},
		"files of others": {"1", func(f *amdtest.Tree) {
			open(f, 9, "3", node(1, 128))
			open(f, 9, "4", sysfs.Info{Major: 226, Minor: 128})
		}, "its count of users is 1; " + sysfs.UnknownUsers},
		"a display, once":                 {"1", func(f *amdtest.Tree) { open(f, 9, "3", node(226, 128)); open(f, 9, "4", node(226, 128)) }, "process 9 (Xorg) has its device nodes open" + retried},
		"of a partition and KFD, sorted":  {"1", func(f *amdtest.Tree) { open(f, 10, "3", node(226, 131)); open(f, 9, "3", node(239, 0)) }, "processes 9 (Xorg), 10 (Xorg) have its device nodes open" + retried},
		"a process that cannot be looked": {"1", func(f *amdtest.Tree) { open(f, 9, "3", node(226, 128)); f.Refuse("list /proc/9/fd", unix.EPERM) }, "its count of users is 1; " + sysfs.UnknownUsers},
	} {
		files := amdtest.NewTree(amdtest.MI300XSPX())
		if test.count != "" {
			files.Set(sysfs.RefcntFile, test.count+"\n")
		}
		if test.change != nil {
			test.change(files)
		}
		users := func() (string, error) { return sysfs.InTask(t.Context(), files, sysfs.Users) }
		got, err := users()
		require.NoError(t, err, name)
		assert.Equal(t, test.want, got, name)
		for _, call := range []string{"read " + sysfs.RefcntFile, "list " + sysfs.HoldersDir, "list " + sysfs.ProcessDir} {
			files.Refuse(call, unix.EIO)
			_, err := users()
			assert.ErrorIs(t, err, unix.EIO, "%s: %s", name, call)
			delete(files.Fails, call)
		}
	}
}
