package kfd

import (
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/tranche-dev/tranche/pkg/hardware/amd/sysfs"
)

// Use is what a process uses of a node.
type Use struct {
	PID int
	// GPUID is that of the node.
	GPUID string
	// Memory is in bytes.
	Memory uint64
	// ComputeUnits is how many have work of the process at this moment, -1 if the driver
	// does not tell.
	ComputeUnits int64
}

// Uses lists what processes use of the nodes with these gpu_ids. vram_<gpu_id> is the memory, and
// stats_<gpu_id>/cu_occupancy the compute units (kfd_procfs_add_sysfs_files and
// kfd_procfs_add_sysfs_stats in Linux' kfd_process.c). A process has the files of all nodes that
// it may use; one without memory there uses nothing of it.
func Uses(t *sysfs.Task, gpuIDs []string) ([]Use, error) {
	pids, err := t.List(sysfs.ProcessDir)
	if sysfs.Absent(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var all []Use
	for _, name := range pids {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		dir := path.Join(sysfs.ProcessDir, name)
		files, err := t.List(dir)
		if err != nil && !sysfs.Absent(err) {
			return nil, err
		}
		for _, file := range files {
			id, ok := strings.CutPrefix(file, "vram_")
			if !ok || !slices.Contains(gpuIDs, id) {
				continue
			}
			u, err := use(t, dir, id)
			if err != nil {
				return nil, err
			}
			if u.Memory > 0 {
				u.PID = pid
				all = append(all, u)
			}
		}
	}
	return all, nil
}

// use reads what a process uses of a node. Nothing of one that ended while we looked.
func use(t *sysfs.Task, dir, id string) (Use, error) {
	u := Use{GPUID: id, ComputeUnits: -1}
	text, err := t.ReadOptional(path.Join(dir, "vram_"+id))
	if err != nil {
		return u, err
	}
	u.Memory = number(text)
	text, err = t.ReadOptional(path.Join(dir, "stats_"+id, "cu_occupancy"))
	if err != nil || text == "" {
		return u, err
	}
	u.ComputeUnits = int64(min(number(text), 1<<20)) //nolint:gosec // bounded
	return u, nil
}

// number is zero for a text that is none.
func number(text string) uint64 {
	n, err := strconv.ParseUint(text, 10, 63)
	if err != nil {
		return 0
	}
	return n
}
