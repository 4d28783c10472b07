package amd

import (
	"context"
	"fmt"
	"path"
	"strconv"
	"strings"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware/amd/sysfs"
)

// The files of the kernel's controller dmem in a control group, since Linux 6.14 (kernel/cgroup/dmem.c).
// Each has a line for each region: its name, and bytes or "max".
const (
	limitFile   = "dmem.max"
	currentFile = "dmem.current"
	unlimited   = "max"
)

// region is the name of all VRAM of a GPU, whatever its partitions are (drmm_cgroup_register_region in
// drm_drv.c, amdgpu_vram_mgr_init in amdgpu_vram_mgr.c).
func (h *gpuHandle) region() string { return "drm/" + h.PCIAddress + "/vram" }

// SetMemoryLimit implements hardware.Driver. It has never limited a program on a GPU; what the source of
// Linux says:
//
//   - An allocation counts for the control group of the process that makes it, also through KFD, and for
//     all groups above (ttm_resource_alloc). So the groups below need no limit.
//   - At the limit, memory of other processes of the group is moved to the host's memory; an allocation
//     for which that is not enough fails (ttm_bo_evict_alloc).
//   - What was moved is brought back by a worker of the kernel, and counts for nobody then
//     (amdgpu_amdkfd_gpuvm_restore_process_bos). So does managed memory that comes by page faults.
//   - A limit below what is used has no effect, which some versions do not tell.
//
// Nothing is guaranteed: that takes dmem.min in all groups above, which are the kubelet's.
func (d *Driver) SetMemoryLimit(ctx context.Context, pciAddress, group string, limit gpu.MemoryLimit) error {
	_, err := forGPU(ctx, d, pciAddress, func(h *gpuHandle) (struct{}, error) { return struct{}{}, h.limitMemory(group, limit.Bytes) })
	return err
}

func (h *gpuHandle) limitMemory(group string, limit int64) error {
	// The kernel answers the same to an unknown region and to a number that it cannot read.
	if _, err := h.dmem(group, limitFile); err != nil {
		return err
	}
	value := unlimited
	if limit > 0 {
		value = strconv.FormatInt(limit, 10)
	}
	return h.On(h.driver.cfg.Groups).Write(path.Join(group, limitFile), h.region()+" "+value)
}

// MemoryLimit implements hardware.Driver.
func (d *Driver) MemoryLimit(ctx context.Context, pciAddress, group string) (gpu.MemoryLimit, error) {
	return forGPU(ctx, d, pciAddress, func(h *gpuHandle) (limit gpu.MemoryLimit, err error) {
		if limit.Bytes, err = h.dmem(group, limitFile); err == nil {
			limit.Used, err = h.dmem(group, currentFile)
		}
		return limit, err
	})
}

// dmem reads the GPU's number in a file of a control group, in bytes; zero: no limit.
func (h *gpuHandle) dmem(group, file string) (int64, error) {
	text, err := h.On(h.driver.cfg.Groups).Read(path.Join(group, file))
	if sysfs.Absent(err) {
		return 0, fmt.Errorf("the kernel's controller dmem (Linux 6.14 or later, CONFIG_CGROUP_DMEM) is not enabled for the control group, so its memory of GPUs cannot be limited: %w", err)
	}
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if name != h.region() {
			continue
		}
		if value == unlimited {
			return 0, nil
		}
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil || n < 0 {
			return 0, fmt.Errorf("GPU %s: %s of control group %s has %q, which is not a number of bytes", h.PCIAddress, file, group, value)
		}
		return n, nil
	}
	return 0, fmt.Errorf("GPU %s: its driver has not registered %s with the kernel's controller dmem, so nothing limits its memory: %w", h.PCIAddress, h.region(), gpu.ErrNotSupported)
}
