package nvdriver

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/tranche-dev/tranche/test/simulator/nvstate"
)

// The limits of a GPU's memory by control group, since R615. The groups of a machine are the folders of
// [Groups]: those that a test makes, or the kernel's (cmd/simulated-driver). As the real driver, this
// one limits in one of two ways (realdriver.md): by the kernel's controller dmem if the machine has
// one, otherwise by itself, where what a process allocates counts for the nearest group with a limit.

// Groups is the folder of a machine's control groups.
func Groups(root string) string { return filepath.Join(root, "sys/fs/cgroup") }

// dmemCapacity is what the root of the groups has if the kernel has the controller dmem, and dmemMax
// what a group has for which the controller is enabled.
const (
	dmemCapacity = "dmem.capacity"
	dmemMax      = "dmem.max"
)

// noLimit is the hard limit of a group without one (NVML_DEVICE_MEMORY_LIMIT_MAX).
const noLimit = uint64(nvml.DEVICE_MEMORY_LIMIT_MAX)

// SetMemoryLimits_v1 needs an existing group below the root of all.
func (d *device) SetMemoryLimits_v1(group string, soft, hard uint64) nvml.Return {
	if !d.nv.library.memoryLimits {
		return nvml.ERROR_FUNCTION_NOT_FOUND
	}
	total, _ := d.gpu().Model.Memory()
	if soft > hard || soft > total || hard > total && hard != noLimit {
		return nvml.ERROR_INVALID_ARGUMENT
	}
	return d.change("SetMemoryLimits", 0, func(st *nvstate.State, g *nvstate.GPU) nvml.Return {
		if g.MIGMode {
			return nvml.ERROR_NOT_SUPPORTED
		}
		of := limited{d.nv.root, g}
		inode, ret := of.inode(group)
		switch {
		case ret != nvml.SUCCESS:
			return ret
		case group == Groups(of.root):
			return nvml.ERROR_NOT_SUPPORTED
		case of.byKernel() && !exists(group, dmemMax):
			return nvml.ERROR_NOT_FOUND
		case hard < of.used(st, group) && of.byKernel():
			return nvml.SUCCESS // page_counter_set_max refuses, and dmem does not tell
		case hard < of.used(st, group):
			return nvml.ERROR_INVALID_ARGUMENT
		}
		if g.MemoryLimits == nil {
			g.MemoryLimits = map[string]nvstate.MemoryLimit{}
		}
		g.MemoryLimits[group] = nvstate.MemoryLimit{Inode: inode, Soft: soft, Hard: hard}
		return nvml.SUCCESS
	})
}

// GetMemoryLimits_v1 answers with the limit of the nearest group that has one. Without the kernel's
// controller, NOT_SUPPORTED means that there is none.
func (d *device) GetMemoryLimits_v1(group string) (nvml.MemoryLimits_v1, nvml.Return) {
	limits := nvml.MemoryLimits_v1{NameSpace: group}
	if !d.nv.library.memoryLimits {
		return limits, nvml.ERROR_FUNCTION_NOT_FOUND
	}
	st, g, ret := d.viewState("GetMemoryLimits")
	if ret != nvml.SUCCESS {
		return limits, ret
	}
	of := limited{d.nv.root, g}
	if _, ret := of.inode(group); ret != nvml.SUCCESS {
		return limits, ret
	}
	if g.MIGMode {
		return limits, nvml.ERROR_NOT_SUPPORTED
	}
	at, limit, found := of.nearest(group)
	switch {
	case of.byKernel() && (!found || at != group && exists(group, dmemMax)):
		limits.HardLimit, limits.CurrentUsed = noLimit, of.used(st, group)
	case !found:
		return limits, nvml.ERROR_NOT_SUPPORTED
	default:
		limits.SoftLimit, limits.HardLimit, limits.CurrentUsed = limit.Soft, limit.Hard, of.used(st, at)
	}
	return limits, nvml.SUCCESS
}

// ErrOutOfMemory is what a process gets that allocates more than the limits of its group admit.
var ErrOutOfMemory = errors.New("out of memory")

// Allocate is AddProcess for a process with a control group, unless its memory exceeds a limit.
func Allocate(root string, p Process) error {
	return nvstate.Store(root).Update(func(st *nvstate.State) (*nvstate.State, error) {
		if st == nil {
			return nil, nvstate.ErrNone(root)
		}
		g, ok := st.GPU(p.GPU)
		if !ok {
			return nil, fmt.Errorf("gpu: no GPU at %s", p.GPU)
		}
		of := limited{root, g}
		for group := p.Group; ; group = filepath.Dir(group) {
			at, limit, found := of.nearest(group)
			if !found {
				break
			}
			if of.used(st, at)+p.Memory() > limit.Hard {
				return nil, ErrOutOfMemory
			}
			if !of.byKernel() {
				break // limits do not nest
			}
			group = at
		}
		st.Processes = append(st.Processes, p)
		return st, nil
	})
}

// limited is the limits of one GPU of a machine.
type limited struct {
	root string
	gpu  *nvstate.GPU
}

func (l limited) byKernel() bool { return exists(Groups(l.root), dmemCapacity) }

// inode identifies a group: one of the same name that is made later has none of its limits.
func (l limited) inode(group string) (uint64, nvml.Return) {
	if group != filepath.Clean(group) || !l.isGroup(group) {
		return 0, nvml.ERROR_OPERATING_SYSTEM
	}
	info, err := os.Stat(group)
	if err != nil || !info.IsDir() {
		return 0, nvml.ERROR_OPERATING_SYSTEM
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, nvml.ERROR_OPERATING_SYSTEM
	}
	return stat.Ino, nvml.SUCCESS
}

func (l limited) isGroup(path string) bool { return isBelow(path, Groups(l.root)) }

// isBelow reports whether a group is another one, or below it.
func isBelow(group, other string) bool { return group == other || strings.HasPrefix(group, other+"/") }

// nearest returns the nearest group with a limit, from a group up.
func (l limited) nearest(group string) (at string, limit nvstate.MemoryLimit, found bool) {
	for at = group; l.isGroup(at); at = filepath.Dir(at) {
		if limit, found = l.gpu.MemoryLimits[at]; !found || limit.Hard == noLimit {
			continue
		}
		if inode, ret := l.inode(at); ret == nvml.SUCCESS && inode == limit.Inode {
			return at, limit, true
		}
	}
	return "", nvstate.MemoryLimit{}, false
}

// used is what counts for a group, in bytes.
func (l limited) used(st *nvstate.State, group string) (used uint64) {
	for _, p := range st.Processes {
		if p.GPU != l.gpu.PCI || !isBelow(p.Group, group) {
			continue
		}
		if at, _, found := l.nearest(p.Group); l.byKernel() || found && at == group {
			used += p.Memory()
		}
	}
	return used
}

func exists(folder, name string) bool {
	_, err := os.Stat(filepath.Join(folder, name))
	return err == nil
}
