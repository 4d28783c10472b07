package sysfs

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
)

// Process is a program that uses KFD.
type Process struct {
	PID  int
	name string
}

func (p Process) String() string {
	if p.name == "" {
		return strconv.Itoa(p.PID)
	}
	return fmt.Sprintf("%d (%s)", p.PID, p.name)
}

// Processes are the processes of the host that use KFD.
type Processes struct {
	// OnGPU are those that use one GPU, others the rest of the host's.
	OnGPU, Others []Process
}

// ProcessesOf lists the processes that use KFD. gpuIDs are the gpu_ids of the nodes of
// the GPU in question. A process has a file vram_<gpu_id> for each node that it can use
// (kfd_procfs_add_sysfs_files in Linux' kfd_process.c).
func ProcessesOf(t *Task, gpuIDs []string) (Processes, error) {
	var out Processes
	all, err := AllProcesses(t)
	if err != nil {
		return out, err
	}
	for _, p := range all {
		files, err := t.List(path.Join(ProcessDir, strconv.Itoa(p.PID)))
		if Absent(err) {
			continue // it ended while we looked
		}
		if err != nil {
			return out, err
		}
		if slices.ContainsFunc(files, func(file string) bool {
			id, ok := strings.CutPrefix(file, "vram_")
			return ok && slices.Contains(gpuIDs, id)
		}) {
			out.OnGPU = append(out.OnGPU, p)
		} else {
			out.Others = append(out.Others, p)
		}
	}
	return out, nil
}

// AllProcesses lists the processes that use KFD on any GPU, in the order of their ids.
func AllProcesses(t *Task) ([]Process, error) {
	pids, err := t.List(ProcessDir)
	if Absent(err) {
		return nil, nil
	}
	var all []Process
	for _, name := range pids {
		if pid, err := strconv.Atoi(name); err == nil {
			all = append(all, NewProcess(t, pid))
		}
	}
	slices.SortFunc(all, func(a, b Process) int { return a.PID - b.PID })
	return all, err
}

// NewProcess reads the name of a process, which is empty where it cannot be read.
func NewProcess(t *Task, pid int) Process {
	name, _ := t.Read(path.Join("/proc", strconv.Itoa(pid), "comm"))
	return Process{PID: pid, name: name}
}

// namedProcesses is how many processes an error names.
const namedProcesses = 8

// Listed names processes in a message, with the verb that fits their number:
// "process 7 (python) uses".
func Listed(all []Process, singular, plural string) string {
	names := make([]string, 0, len(all))
	for i, p := range all {
		if i == namedProcesses {
			names = append(names, fmt.Sprintf("and %d more", len(all)-i))
			break
		}
		names = append(names, p.String())
	}
	if len(all) == 1 {
		return "process " + names[0] + " " + singular
	}
	return "processes " + strings.Join(names, ", ") + " " + plural
}
