package sysfs

import (
	"errors"
	"path"
	"strconv"

	"golang.org/x/sys/unix"
)

// Use is what a process uses of a node.
type Use struct {
	PID int
	// GPUID is that of the node.
	GPUID string
	// Memory is in bytes.
	Memory uint64
	// ComputeUnits is how many have work of the process at this moment, -1 if the driver
	// does not report it.
	ComputeUnits int64
}

// maxProcesses is how many processes of the node are read. While they are, no claim on the GPU is
// prepared, and everybody who has a GPU can start as many as they like.
const maxProcesses = 512

// Uses lists what processes use of the nodes with these gpu_ids. told is false if there are too
// many processes. vram_<gpu_id> is the memory, and stats_<gpu_id>/cu_occupancy the compute units
// (kfd_procfs_add_sysfs_files and kfd_procfs_add_sysfs_stats in Linux' kfd_process.c). A process
// has the files of all nodes that it may use; one without memory there uses nothing of it.
func Uses(t *Task, gpuIDs []string) (all []Use, told bool, err error) {
	pids, err := t.List(ProcessDir)
	if Absent(err) {
		return nil, true, nil
	}
	if err != nil || len(pids) > maxProcesses {
		return nil, false, err
	}
	for _, name := range pids {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		for _, id := range gpuIDs {
			u, err := use(t, path.Join(ProcessDir, name), id)
			if err != nil {
				return nil, false, err
			}
			if u.Memory > 0 {
				u.PID = pid
				all = append(all, u)
			}
		}
	}
	return all, true, nil
}

// use reads what a process uses of a node. Nothing of one that ended while we looked.
func use(t *Task, dir, id string) (Use, error) {
	u := Use{GPUID: id, ComputeUnits: -1}
	text, err := optional(t, path.Join(dir, "vram_"+id))
	if u.Memory = number(text); err != nil || u.Memory == 0 {
		return u, err
	}
	text, err = optional(t, path.Join(dir, "stats_"+id, "cu_occupancy"))
	if err != nil || text == "" {
		return u, err
	}
	u.ComputeUnits = int64(min(number(text), 1<<20)) //nolint:gosec // bounded
	return u, nil
}

// optional reads a file of a process, which is empty if the process has ended. EINVAL says that
// the chip does not report (kfd_get_cu_occupancy).
func optional(t *Task, name string) (string, error) {
	text, err := t.ReadOptional(name)
	if errors.Is(err, unix.ENODEV) || errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EINVAL) {
		return "", nil
	}
	return text, err
}

// number is zero for a text that is none.
func number(text string) uint64 {
	n, err := strconv.ParseUint(text, 10, 63)
	if err != nil {
		return 0
	}
	return n
}
