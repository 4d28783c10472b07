package sysfs

import (
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
)

// UnknownUsers is the message for users that neither KFD nor the kernel's modules name.
const UnknownUsers = "the processes cannot be seen from here: find them with lsof /dev/kfd /dev/dri/* on the node and end them; this is retried"

// Users names who keeps the driver from being unloaded; empty if nobody does.
func Users(t *Task) (string, error) {
	count, err := t.ReadOptional(RefcntFile)
	if err != nil {
		return "", err
	}
	all, err := AllProcesses(t)
	if err != nil {
		return "", err
	}
	holders, err := t.List(HoldersDir)
	if err != nil && !Absent(err) {
		return "", err
	}
	var who []string
	if len(all) > 0 {
		who = append(who, Listed(all, "uses KFD", "use KFD"))
	}
	for _, name := range holders {
		who = append(who, fmt.Sprintf("the kernel module %s uses it", name))
	}
	if len(who) == 0 && count != "" && count != "0" {
		who = nodeUsers(t)
	}
	switch {
	case len(who) > 0:
		return strings.Join(who, " and ") + "; once they have ended or moved, this is retried", nil
	case count != "" && count != "0":
		return "its count of users is " + count + "; " + UnknownUsers, nil
	}
	return "", nil
}

// nodeUsers are the processes that have one of amdgpu's device nodes open, for display or
// video. It searches all open files of the host, and ignores those that it cannot read.
func nodeUsers(t *Task) []string {
	nodes := deviceNumbers(t)
	pids, _ := t.List("/proc")
	var all []Process
	for _, name := range pids {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		dir := path.Join("/proc", name, "fd")
		files, _ := t.List(dir)
		for _, file := range files {
			info, err := t.Stat(path.Join(dir, file))
			if err == nil && info.Mode&fs.ModeCharDevice != 0 && nodes[[2]uint32{info.Major, info.Minor}] {
				all = append(all, NewProcess(t, pid))
				break
			}
		}
	}
	if len(all) == 0 {
		return nil
	}
	slices.SortFunc(all, func(a, b Process) int { return a.PID - b.PID })
	return []string{Listed(all, "has its device nodes open", "have its device nodes open")}
}

// deviceNumbers are those of amdgpu's device nodes: KFD's, and the DRM nodes of the
// GPUs and of the partition devices.
func deviceNumbers(t *Task) map[[2]uint32]bool {
	numbers := map[[2]uint32]bool{}
	note := func(name string) {
		if info, err := t.Stat(name); err == nil && info.Mode&fs.ModeCharDevice != 0 {
			numbers[[2]uint32{info.Major, info.Minor}] = true
		}
	}
	note(KFDDevice)
	places := []string{}
	gpus, _ := t.List(DriverDirs[0])
	for _, name := range gpus {
		places = append(places, path.Join(DevicesDir, name))
	}
	partitions, _ := t.List(PlatformDir)
	for _, name := range partitions {
		if strings.HasPrefix(name, "amdgpu_xcp") {
			places = append(places, path.Join(PlatformDir, name))
		}
	}
	for _, place := range places {
		nodes, _ := t.List(path.Join(place, "drm"))
		for _, node := range nodes {
			note(path.Join(RenderDir, node))
		}
	}
	return numbers
}
