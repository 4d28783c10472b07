package amdgpu

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/tranche-dev/tranche/pkg/hardware/amd/sysfs"
)

// The controller dmem (Linux' kernel/cgroup/dmem.c) for the memory of the GPUs. The control groups of a
// machine are folders that a test makes, and a group has the controller if a file dmem.max is in its
// folder. What that file contains does not count.
const (
	dmemMax     = "dmem.max"
	dmemCurrent = "dmem.current"
	noLimit     = "max"
)

// memoryGroup is what a control group may have and has of a GPU's memory. One of the same name that is
// made later has another inode, and none of it.
type memoryGroup struct {
	Inode uint64 `json:"inode"`
	// Limit is in bytes; nil: none. Used is without the groups below.
	Limit *uint64 `json:"limit,omitempty"`
	Used  uint64  `json:"used,omitempty"`
}

// Groups are the files of the controller, by the paths of the groups' folders.
func (k *Kernel) Groups() sysfs.Files { return groups{k, k} }

type groups struct {
	sysfs.Files
	kernel *Kernel
}

// groupOf is the folder of a file of the controller, if the group has that.
func groupOf(name string) (folder string, err error) {
	folder, base := filepath.Split(name)
	if _, err := os.Stat(filepath.Join(folder, dmemMax)); err != nil || base != dmemMax && base != dmemCurrent {
		return "", &fs.PathError{Op: "open", Path: name, Err: unix.ENOENT}
	}
	return filepath.Clean(folder), nil
}

// ReadFile shows a line for each GPU.
func (g groups) ReadFile(name string) ([]byte, error) {
	folder, err := groupOf(name)
	if err != nil {
		return nil, err
	}
	st, err := g.kernel.store.Read()
	if err != nil {
		return nil, err
	}
	var text strings.Builder
	for i := range st.GPUs {
		if !g.kernel.hasRegion(st, i) {
			continue
		}
		value := noLimit
		switch group := st.GPUs[i].group(folder); {
		case filepath.Base(name) == dmemCurrent:
			value = strconv.FormatUint(st.GPUs[i].used(folder), 10)
		case group.Limit != nil:
			value = strconv.FormatUint(*group.Limit, 10)
		}
		fmt.Fprintf(&text, "%s %s\n", region(st.GPUs[i].PCI), value)
	}
	return []byte(text.String()), nil
}

// WriteFile sets the limit of a group. One below what is used has no effect, which is not told, as in
// Linux 6.14.
func (g groups) WriteFile(name string, data []byte) error {
	folder, err := groupOf(name)
	if err != nil {
		return err
	}
	fail := func(err error) error { return &fs.PathError{Op: "write", Path: name, Err: err} }
	if filepath.Base(name) != dmemMax {
		return fail(unix.EACCES)
	}
	of, value, _ := strings.Cut(strings.TrimSpace(string(data)), " ")
	var limit *uint64
	if value != noLimit {
		n, err := strconv.ParseUint(value, 10, 63)
		if err != nil {
			return fail(unix.EINVAL)
		}
		limit = &n
	}
	return g.kernel.store.Update(func(st *state) (*state, error) {
		i := slices.IndexFunc(st.GPUs, func(c gpuState) bool { return region(c.PCI) == of })
		if i < 0 || !g.kernel.hasRegion(st, i) {
			return nil, fail(unix.EINVAL)
		}
		if limit != nil && st.GPUs[i].used(folder) > *limit {
			return nil, nil
		}
		group := st.GPUs[i].group(folder)
		group.Limit = limit
		st.GPUs[i].setGroup(folder, group)
		return st, nil
	})
}

// ErrOutOfMemory is what a process gets whose control group has no memory left.
var ErrOutOfMemory = errors.New("out of memory")

// Allocate has a process of a control group allocate memory of a GPU.
func (k *Kernel) Allocate(folder, pci string, bytes uint64) error {
	return k.store.Update(func(st *state) (*state, error) {
		i := st.gpu(pci)
		if i < 0 {
			return nil, fmt.Errorf("no GPU at %s", pci)
		}
		c := &st.GPUs[i]
		for at := folder; at != filepath.Dir(at) && k.hasRegion(st, i); at = filepath.Dir(at) {
			if limit := c.group(at).Limit; limit != nil && c.used(at)+bytes > *limit {
				return nil, ErrOutOfMemory
			}
		}
		group := c.group(folder)
		group.Used += bytes
		c.setGroup(folder, group)
		return st, nil
	})
}

func region(pci string) string { return "drm/" + pci + "/vram" }

// hasRegion reports whether the driver has registered a GPU's memory: that of an APU is the host's, and
// a region of no size is none (dmem_cgroup_register_region).
func (k *Kernel) hasRegion(st *state, i int) bool {
	return k.view(st, &Faults{}).bound(i) && !k.inventory.AMD[i].Model.APU
}

func inodeOf(folder string) uint64 {
	info, err := os.Stat(folder)
	if err != nil {
		return 0
	}
	stat, _ := info.Sys().(*syscall.Stat_t)
	return stat.Ino
}

// group is what is known of a control group.
func (c *gpuState) group(folder string) memoryGroup {
	if inode := inodeOf(folder); c.Groups[folder].Inode != inode {
		return memoryGroup{Inode: inode}
	}
	return c.Groups[folder]
}

func (c *gpuState) setGroup(folder string, g memoryGroup) {
	c.Groups = maps.Clone(c.Groups) // the state before has it, too
	if c.Groups == nil {
		c.Groups = map[string]memoryGroup{}
	}
	c.Groups[folder] = g
}

// used is what a group and those below it have.
func (c *gpuState) used(folder string) (sum uint64) {
	for at, g := range c.Groups {
		if (at == folder || strings.HasPrefix(at, folder+"/")) && inodeOf(at) == g.Inode {
			sum += g.Used
		}
	}
	return sum
}
