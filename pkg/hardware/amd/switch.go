package amd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tranche-dev/tranche/pkg/hardware/amd/sysfs"
	"github.com/tranche-dev/tranche/pkg/hardware/xcp"
	"github.com/tranche-dev/tranche/pkg/sleep"
)

const (
	// firstRetry is the pause after the first refusal of a GPU in use, lastRetry
	// the longest.
	firstRetry = 250 * time.Millisecond
	lastRetry  = 2 * time.Second
)

// SetComputePartition puts a GPU into a compute mode and waits until each of its partitions
// has a KFD node and a device node. A GPU in use is retried until Config.BusyPatience or ctx
// ends; then the error is a *BusyError, which names the processes. If a partition is missing,
// the GPU stays in the mode and the error names the partition.
func (d *Driver) SetComputePartition(ctx context.Context, pciAddress, mode string) error {
	want, err := parseMode("compute", mode, xcp.ParseModes)
	if err != nil {
		return err
	}
	if err := d.switchTo(ctx, pciAddress, want); err != nil {
		return err
	}
	count, err := forGPU(ctx, d, pciAddress, func(c *gpuHandle) (int, error) {
		l, err := c.Look()
		return len(l.Partitions), err
	})
	if err != nil {
		return err
	}
	for index := range count {
		if _, err := d.await(ctx, pciAddress, want, index); err != nil {
			return err
		}
	}
	return nil
}

// parseMode reads a mode as it is written by us: one word.
func parseMode[T ~string](kind, text string, parse func(string) []T) (T, error) {
	if modes := parse(text); len(modes) == 1 && string(modes[0]) == text {
		return modes[0], nil
	}
	return "", fmt.Errorf("%q is no %s mode of AMD's GPUs", text, kind)
}

// switchTo writes the mode until the kernel accepts it or patience ends. The kernel decides
// whether the GPU is in use; KFD's list of processes only explains it.
func (d *Driver) switchTo(ctx context.Context, pciAddress string, want xcp.Mode) error {
	deadline := d.patience(ctx)
	for pause := firstRetry; ; pause = min(2*pause, lastRetry) {
		last := time.Now().Add(pause).After(deadline)
		_, err := forGPU(ctx, d, pciAddress, func(c *gpuHandle) (struct{}, error) {
			err := c.tryMode(want)
			if last && errors.Is(err, unix.EBUSY) {
				err = c.explainBusy(want, err)
			}
			return struct{}{}, err
		})
		if last || !errors.Is(err, unix.EBUSY) {
			return err
		}
		if err := sleep.For(ctx, pause); err != nil {
			return fmt.Errorf("GPU %s: wait until it can be put into mode %s: %w", pciAddress, want, err)
		}
	}
}

// patience is when to stop waiting for processes that use a GPU: Config.BusyPatience, or the
// deadline of ctx, so that its error names the processes, too.
func (d *Driver) patience(ctx context.Context) time.Time {
	deadline := time.Now().Add(d.cfg.BusyPatience)
	if limit, ok := ctx.Deadline(); ok && limit.Before(deadline) {
		return limit
	}
	return deadline
}

// tryMode puts the GPU into a mode, if it is in another, and reads it back.
func (c *gpuHandle) tryMode(want xcp.Mode) error {
	now, err := c.ComputeMode()
	if err != nil || now == want {
		return err
	}
	if err := c.checkOffer(now, want); err != nil {
		return err
	}
	if err := c.Write(c.File(sysfs.ComputeFile), string(want)); err != nil {
		return c.explainWrite(want, err)
	}
	got, err := c.ComputeMode()
	if err != nil {
		return fmt.Errorf("read back whether the GPU is in %s now: %w", want, err)
	}
	if got != want {
		return fmt.Errorf("GPU %s: amdgpu took mode %s without an error, but the GPU is in %s; this is retried; if it stays so, look for amdgpu in dmesg", c.PCIAddress, want, got)
	}
	c.learnFromSuccess()
	c.driver.cfg.Logger.V(2).Info("Switched the compute mode of a GPU", "gpu", c.PCIAddress, "from", now, "to", want)
	return nil
}

// checkOffer fails, with a reason, for a mode that the kernel would refuse without one.
func (c *gpuHandle) checkOffer(now, want xcp.Mode) error {
	if now == "" {
		return fmt.Errorf("GPU %s cannot be cut: amdgpu has no %s for it", c.PCIAddress, sysfs.ComputeFile)
	}
	memory, err := c.MemoryMode()
	if err != nil {
		return err
	}
	l, err := c.Look()
	if err != nil {
		return err
	}
	offer, err := c.ComputeModes(now, memory, l.Nodes())
	if err != nil {
		return err
	}
	if slices.Contains(offer, want) {
		return nil
	}
	return fmt.Errorf("GPU %s cannot be put into mode %s: in memory mode %s it has %s; if the memory mode was changed, what the GPU offers is published again and the pod can be deleted to be scheduled again",
		c.PCIAddress, want, memory, strings.Join(sysfs.Texts(offer), ", "))
}

// explainWrite adds to an error of the kernel what it means and what to do.
func (c *gpuHandle) explainWrite(want xcp.Mode, err error) error {
	switch {
	case sysfs.Absent(err), errors.Is(err, unix.ENODEV):
		return c.Gone(err)
	case errors.Is(err, unix.EPERM):
		return c.Explain(err)
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EROFS):
		return fmt.Errorf("%w (the plugin must run as root and see /sys writable)", err)
	case errors.Is(err, unix.EIO):
		return fmt.Errorf("%w (KFD could not be started again on the GPU: look for kfd in dmesg; if the next try fails too, reload amdgpu or reboot the node)", err)
	case errors.Is(err, unix.EINVAL):
		return fmt.Errorf("%w (amdgpu refuses mode %s: the memory mode was changed meanwhile, or another switch is under way; this is retried)", err, want)
	}
	return err
}
