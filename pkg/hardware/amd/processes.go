package amd

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
)

// process is a program that uses KFD.
type process struct {
	pid  int
	name string
}

func (p process) String() string {
	if p.name == "" {
		return strconv.Itoa(p.pid)
	}
	return fmt.Sprintf("%d (%s)", p.pid, p.name)
}

// processes is who uses KFD.
type processes struct {
	// gpu are those that use one GPU, others the rest of the host's.
	gpu, others []process
}

// processes lists who uses KFD, and who of them the GPU. A process has a file
// vram_<gpu_id> for each node that it can use
// (kfd_procfs_add_sysfs_files in Linux' kfd_process.c).
func (c *gpuHandle) processes(l live) (processes, error) {
	var out processes
	pids, err := c.list(processDir)
	if absent(err) {
		return out, nil
	}
	if err != nil {
		return out, err
	}
	for _, name := range pids {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		files, err := c.list(path.Join(processDir, name))
		if absent(err) {
			continue // it ended while we looked
		}
		if err != nil {
			return out, err
		}
		p := process{pid: pid, name: c.comm(name)}
		if slices.ContainsFunc(files, l.uses) {
			out.gpu = append(out.gpu, p)
		} else {
			out.others = append(out.others, p)
		}
	}
	order := func(a, b process) int { return a.pid - b.pid }
	slices.SortFunc(out.gpu, order)
	slices.SortFunc(out.others, order)
	return out, nil
}

// uses tells whether a file of a process is about one of the GPU's nodes.
func (l live) uses(file string) bool {
	id, ok := strings.CutPrefix(file, "vram_")
	return ok && slices.ContainsFunc(l.partitions, func(p partition) bool { return p.node != nil && p.node.gpuID == id })
}

// comm is the name of a process, empty when it is not to be seen.
func (c *gpuHandle) comm(pid string) string {
	name, err := c.read(path.Join("/proc", pid, "comm"))
	if err != nil {
		return ""
	}
	return name
}

// namedProcesses is how many processes an error names.
const namedProcesses = 8

func names(all []process) string {
	texts := make([]string, 0, len(all))
	for i, p := range all {
		if i == namedProcesses {
			texts = append(texts, fmt.Sprintf("and %d more", len(all)-i))
			break
		}
		texts = append(texts, p.String())
	}
	word := "process "
	if len(all) > 1 {
		word = "processes "
	}
	return word + strings.Join(texts, ", ")
}
