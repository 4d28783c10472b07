package amd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware/xcp"
	"github.com/tranche-dev/tranche/pkg/sleep"
)

const (
	// firstRetry is the pause after the first refusal of a GPU in use, lastRetry
	// the longest.
	firstRetry = 250 * time.Millisecond
	lastRetry  = 2 * time.Second
)

// Create makes sure that the GPU is in the mode of the placement and that the
// partition can be used. A GPU that is in the mode already is left alone; so an
// attempt that was cut short anywhere is finished by the next. See
// hardware.Partitioner.
//
// Between two attempts the GPU's gate is open: looks at a GPU that waits for a
// process to end do not wait, too. Nobody else switches it meanwhile, since the
// caller has its lock.
func (d *Driver) Create(ctx context.Context, p gpu.Placement) (gpu.Partition, error) {
	want, err := modeOf(p)
	if err != nil {
		return gpu.Partition{}, err
	}
	if err := d.switchTo(ctx, p.GPU, want); err != nil {
		return gpu.Partition{}, err
	}
	found, err := d.await(ctx, p.GPU, want, p.Start)
	if err != nil {
		return gpu.Partition{}, err
	}
	return onGPU(ctx, d, p.GPU, func(c *gpuHandle) (gpu.Partition, error) {
		if p.Type == gpu.TypeXCP {
			return c.partition(want, found), nil
		}
		uuid, err := c.uuid()
		return gpu.Partition{
			GPU: p.GPU, Type: p.Type, Profile: p.Profile, UUID: uuid,
			Complete: true, ID: renderName(found.node.minor),
		}, err
	})
}

// Destroy does nothing: the mode stays after a release, and whoever needs
// another switches.
func (d *Driver) Destroy(context.Context, gpu.Placement) error { return nil }

// modeOf is the mode that a placement needs, empty for a GPU without modes.
func modeOf(p gpu.Placement) (xcp.Mode, error) {
	if p.Type == gpu.TypeGPU && p.Profile == "" {
		return "", nil
	}
	mode, ok := xcp.ModeOf(p.Profile)
	if !ok || p.Type != gpu.TypeXCP && p.Type != gpu.TypeGPU || (p.Type == gpu.TypeGPU) != (mode == xcp.SPX) {
		return "", fmt.Errorf("placements of type %q with profile %q are not AMD's", p.Type, p.Profile)
	}
	return mode, nil
}

// switchTo asks for the mode until the GPU is free or patience ends. The kernel's
// answer counts: KFD's list of processes says who is in the way, but not whether
// one is.
func (d *Driver) switchTo(ctx context.Context, pciAddress string, want xcp.Mode) error {
	deadline := d.patience(ctx)
	for pause := firstRetry; ; pause = min(2*pause, lastRetry) {
		last := time.Now().Add(pause).After(deadline)
		_, err := onGPU(ctx, d, pciAddress, func(c *gpuHandle) (struct{}, error) {
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

// patience is when nobody who uses a GPU is waited for any more. The end of the
// caller's time comes with who was in the way, too.
func (d *Driver) patience(ctx context.Context) time.Time {
	deadline := time.Now().Add(d.cfg.BusyPatience)
	if limit, ok := ctx.Deadline(); ok && limit.Before(deadline) {
		return limit
	}
	return deadline
}

// tryMode puts the GPU into a mode, if it is in another, and reads it back.
func (c *gpuHandle) tryMode(want xcp.Mode) error {
	now, err := c.mode()
	if err != nil || now == want {
		return err
	}
	if err := c.checkOffer(now, want); err != nil {
		return err
	}
	if err := c.write(c.file(computeFile), string(want)); err != nil {
		return c.explainWrite(want, err)
	}
	got, err := c.mode()
	if err != nil {
		return fmt.Errorf("read back whether the GPU is in %s now: %w", want, err)
	}
	if got != want {
		return fmt.Errorf("GPU %s: amdgpu took mode %s without an error, but the GPU is in %s; this is tried again; if it stays so, look for amdgpu in dmesg", c.pciAddress, want, got)
	}
	c.learnFromSuccess()
	c.driver.cfg.Logger.V(2).Info("Switched the compute mode of a GPU", "gpu", c.pciAddress, "from", now, "to", want)
	return nil
}

// checkOffer refuses a mode that the GPU does not have as it is now, which the
// kernel refuses too, without a reason.
func (c *gpuHandle) checkOffer(now, want xcp.Mode) error {
	if now == "" {
		return fmt.Errorf("GPU %s cannot be cut: amdgpu has no %s for it", c.pciAddress, computeFile)
	}
	memory, err := c.memoryMode()
	if err != nil {
		return err
	}
	l, err := c.look()
	if err != nil {
		return err
	}
	offer, err := c.modes(now, memory, l.nodes())
	if err != nil {
		return err
	}
	if slices.Contains(offer, want) {
		return nil
	}
	return fmt.Errorf("GPU %s cannot be put into mode %s: in memory mode %s it has %s; if the memory mode was changed, what the GPU offers is published anew and the pod can be deleted to be scheduled again",
		c.pciAddress, want, memory, strings.Join(texts(offer), ", "))
}

// explainWrite says what the kernel means and what to do.
func (c *gpuHandle) explainWrite(want xcp.Mode, err error) error {
	switch {
	case absent(err), errors.Is(err, unix.ENODEV):
		return c.gone(err)
	case errors.Is(err, unix.EPERM):
		return c.told(err)
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EROFS):
		return fmt.Errorf("%w (the plugin must run as root and see /sys writable)", err)
	case errors.Is(err, unix.EIO):
		return fmt.Errorf("%w (KFD could not be started again on the GPU: look for kfd in dmesg; if the next try fails too, load amdgpu anew or reboot the node)", err)
	case errors.Is(err, unix.EINVAL):
		return fmt.Errorf("%w (amdgpu refuses mode %s: the memory mode was changed meanwhile, or another switch is under way; this is tried again)", err, want)
	}
	return err
}
