package amdgpu

import (
	"io/fs"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/tranche-dev/tranche/pkg/hardware/xcp"
)

// WriteFile writes to a file of sysfs, and answers when the kernel is done with
// what that set off.
func (k *Kernel) WriteFile(name string, data []byte) error {
	f, _, real, err := k.find("open", name)
	if err != nil {
		return err
	}
	fail := func(err error) error { return &fs.PathError{Op: "write", Path: name, Err: err} }
	switch {
	case f.isDir():
		return fail(unix.EISDIR)
	case f.mode.Perm()&0o222 == 0 || f.mode&fs.ModeDevice != 0:
		// Also for root: the file has nothing that takes what is written
		// (kernfs_fop_open in Linux' fs/kernfs/file.c).
		return fail(unix.EACCES)
	}
	if err := k.write(f.gpu, path.Base(real), strings.TrimSpace(string(data))); err != nil {
		return fail(err)
	}
	return nil
}

// write carries out a write to a file of a GPU, faults included.
func (k *Kernel) write(gpuIndex int, name, word string) error {
	fault, err := k.fire(gpuIndex, name)
	if err != nil {
		return err
	}
	if fault != nil {
		if done, err := k.before(fault, gpuIndex, name); done {
			return err
		}
	}
	switch name {
	case computeFile:
		err = k.switchCompute(gpuIndex, word)
	case memoryFile:
		err = k.requestMemory(gpuIndex, word)
	case selectorFile:
		err = k.selectConfig(gpuIndex, word)
	}
	if fault != nil && fault.Hang == hangAfter {
		k.hang(*fault)
	}
	return err
}

// parseMode reads a word as the driver does: the beginning counts, in either case
// (amdgpu_gfx_set_compute_partition compares with strncasecmp).
func parseMode[T ~string](word string, all []T) (T, bool) {
	for _, mode := range all {
		if len(word) >= len(mode) && strings.EqualFold(word[:len(mode)], string(mode)) {
			return mode, true
		}
	}
	return "", false
}

var (
	computeModes = []xcp.Mode{xcp.SPX, xcp.DPX, xcp.TPX, xcp.QPX, xcp.CPX}
	memoryModes  = []xcp.MemoryMode{xcp.NPS1, xcp.NPS2, xcp.NPS4, xcp.NPS8}
)

// switchCompute switches a GPU at once, if nothing is in the way.
func (k *Kernel) switchCompute(gpuIndex int, word string) error {
	mode, ok := parseMode(word, computeModes)
	if !ok {
		return unix.EINVAL
	}
	switched := false
	err := k.store.Update(func(st *state) (*state, error) {
		faults, _ := k.faults.Read()
		v := k.view(st, faults)
		c := &st.GPUs[gpuIndex]
		switch {
		case v.resetting(gpuIndex):
			return nil, unix.EPERM
		case !slices.Contains(v.legal(gpuIndex), mode):
			return nil, unix.EINVAL
		case v.modes(gpuIndex).Compute == mode && !c.Broken:
			return nil, nil
		case v.busy(gpuIndex):
			return nil, unix.EBUSY
		}
		switched = true
		c.Now.Compute, c.Broken = mode, false
		c.NodesFrom = k.now().Add(k.nodesAfter)
		st.announce(gpuIndex)
		return st, nil
	})
	if switched {
		k.sleep(k.inventory.AMDDriver.Delays.SwitchMode)
	}
	return err
}

// busy reports whether a process keeps the GPU from being switched.
func (v *view) busy(gpuIndex int) bool {
	return slices.ContainsFunc(v.processes(), func(p Process) bool {
		return p.blocks(v.pci(gpuIndex), v.inv.AMDDriver.BusyHost)
	})
}

// requestMemory records the memory mode for the next load of the driver, for all GPUs of the
// model: GPUs of one XGMI hive share it. The mode that they are in is no request
// (current_memory_partition_store in Linux' amdgpu_gmc.c).
func (k *Kernel) requestMemory(gpuIndex int, word string) error {
	mode, ok := parseMode(word, memoryModes)
	if !ok || !slices.Contains(k.inventory.AMD[gpuIndex].Model.MemoryModes, mode) {
		return unix.EINVAL
	}
	return k.store.Update(func(st *state) (*state, error) {
		faults, _ := k.faults.Read()
		v := k.view(st, faults)
		switch {
		case v.resetting(gpuIndex):
			return nil, unix.EPERM
		case v.modes(gpuIndex).Memory == mode:
			return nil, nil
		}
		for i := range st.GPUs {
			if c := &st.GPUs[i]; c.Model == st.GPUs[gpuIndex].Model && !c.VF {
				c.Requested = mode
			}
		}
		return st, nil
	})
}

// selectConfig chooses what compute_partition_config describes.
func (k *Kernel) selectConfig(gpuIndex int, word string) error {
	mode, ok := parseMode(word, k.inventory.AMD[gpuIndex].Model.Modes())
	if !ok {
		return unix.EINVAL
	}
	return k.store.Update(func(st *state) (*state, error) {
		st.GPUs[gpuIndex].Selected = mode
		return st, nil
	})
}
