package nvidia

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware/nvidia/session"
	"github.com/tranche-dev/tranche/pkg/lists"
)

// firstWithLimits is the first branch of the driver that limits memory by control group.
const firstWithLimits = "R615"

// SetMemoryLimit implements hardware.Driver. What is guaranteed is the soft limit of the group itself: the
// driver adds it to the groups above, and takes it back only by another call, not when the group is
// removed. It lets MPS end programs of groups that have more. So there should be none where no group can
// have more than is guaranteed.
//
// The driver counts in one of two ways (NVIDIA, MPS v3 Memory Partitioning). By the kernel's controller
// dmem, each group that the controller is enabled for has a limit of its own, which programs take for
// the size of the GPU, so the groups below get the same. Otherwise memory counts for the nearest group
// with a limit alone, so they must have none.
func (d *Driver) SetMemoryLimit(ctx context.Context, pciAddress, group string, limit gpu.MemoryLimit) error {
	_, err := onGPU(ctx, d, pciAddress, func(h *handle) (struct{}, error) { return struct{}{}, h.limitMemory(group, limit) })
	return err
}

func (h *handle) limitMemory(group string, limit gpu.MemoryLimit) error {
	if err := h.checkMemoryLimits(); err != nil {
		return err
	}
	// The groups below first: they must not have more when the group has less.
	for _, folder := range groupsWithLimits(group) {
		if err := h.setMemoryLimit(folder, gpu.MemoryLimit{Bytes: limit.Bytes}); err != nil {
			return err
		}
	}
	return h.setMemoryLimit(group, limit)
}

func (h *handle) setMemoryLimit(group string, limit gpu.MemoryLimit) error {
	soft, hard := uint64(max(0, limit.Guaranteed)), uint64(nvml.DEVICE_MEMORY_LIMIT_MAX)
	if limit.Bytes > 0 {
		hard = uint64(limit.Bytes)
	}
	err := session.Tell(h.Task, "DeviceSetMemoryLimits_v1", func() nvml.Return { return h.Device.SetMemoryLimits_v1(group, soft, hard) })
	switch {
	case errors.Is(err, nvml.ERROR_OPERATING_SYSTEM):
		return fmt.Errorf("GPU %s: control group %s cannot be opened, so the driver cannot limit its memory: is cgroup v2 mounted there? %w", h.PCIAddress, group, err)
	case errors.Is(err, nvml.ERROR_NOT_FOUND):
		return fmt.Errorf("GPU %s: the kernel's controller dmem is not enabled for control group %s, so its memory cannot be limited: %w", h.PCIAddress, group, err)
	case session.Unsupported(err):
		return fmt.Errorf("GPU %s: the driver does not limit memory by control group: %w: %w", h.PCIAddress, gpu.ErrNotSupported, err)
	case err != nil:
		return fmt.Errorf("limit the memory of control group %s to %d MiB: %w", group, limit.Bytes/gpu.MiB, err)
	}
	return nil
}

// groupsWithLimits returns the groups below one that have a limit of their own by the kernel's
// controller.
func groupsWithLimits(group string) []string {
	files, _ := fs.Glob(os.DirFS(group), "*/dmem.max") // only a bad pattern is an error
	return lists.Map(files, func(file string) string { return filepath.Join(group, filepath.Dir(file)) })
}

// MemoryLimit implements hardware.Driver.
func (d *Driver) MemoryLimit(ctx context.Context, pciAddress, group string) (gpu.MemoryLimit, error) {
	return onGPU(ctx, d, pciAddress, func(h *handle) (gpu.MemoryLimit, error) {
		if err := h.checkMemoryLimits(); err != nil {
			return gpu.MemoryLimit{}, err
		}
		return h.memoryLimit(group)
	})
}

// memoryLimit reads the limit of a group. The driver's answer that there is none is not the same in all
// cases: NOT_FOUND by nvml.h, NOT_SUPPORTED by the source of 615, or the highest number.
func (h *handle) memoryLimit(group string) (gpu.MemoryLimit, error) {
	limits, err := session.Ask(h.Task, "DeviceGetMemoryLimits_v1", func() (nvml.MemoryLimits_v1, nvml.Return) {
		return h.Device.GetMemoryLimits_v1(group)
	})
	if errors.Is(err, nvml.ERROR_NOT_FOUND) || session.Unsupported(err) {
		return gpu.MemoryLimit{}, nil
	}
	if err != nil {
		return gpu.MemoryLimit{}, fmt.Errorf("read the memory limit of control group %s: %w", group, err)
	}
	limit := gpu.MemoryLimit{Guaranteed: int64(min(limits.SoftLimit, math.MaxInt64)), Used: int64(min(limits.CurrentUsed, math.MaxInt64))} //nolint:gosec // they fit
	if limits.HardLimit <= math.MaxInt64 {
		limit.Bytes = int64(limits.HardLimit)
	}
	return limit, nil
}

// checkMemoryLimits fails with gpu.ErrNotSupported if the library has no limits, and in MIG mode.
func (h *handle) checkMemoryLimits() error {
	if !h.Has("nvmlDeviceSetMemoryLimits_v1") || !h.Has("nvmlDeviceGetMemoryLimits_v1") {
		return fmt.Errorf("GPU %s: its driver is older than %s, the first that limits memory by control group: %w", h.PCIAddress, firstWithLimits, gpu.ErrNotSupported)
	}
	return h.refuseMIG("limit memory by control group")
}
