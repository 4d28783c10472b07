package amd

import (
	"context"
	"fmt"
	"time"

	"github.com/tranche-dev/tranche/pkg/hardware/amd/sysfs"
	"github.com/tranche-dev/tranche/pkg/hardware/xcp"
	"github.com/tranche-dev/tranche/pkg/sleep"
)

const (
	// lookPause is the time between two looks for a node that is not there yet.
	lookPause = 20 * time.Millisecond
	// nodePatience is how long to wait for a KFD node. amdgpu creates the nodes before the
	// write of the mode returns.
	nodePatience = time.Second
	// devicePatience is how long to wait for a device node in /dev, which udev creates.
	devicePatience = 20 * time.Second
)

// await waits until the partition of the mode has its KFD node and its device
// node. Other missing partitions do not matter: Obstacles withholds them.
func (d *Driver) await(ctx context.Context, pciAddress string, want xcp.Mode, index int) (sysfs.Partition, error) {
	start := time.Now()
	type look struct {
		found sysfs.Partition
		// missing says what the partition still lacks.
		missing error
	}
	var last error
	for {
		l, err := forGPU(ctx, d, pciAddress, func(c *gpuHandle) (look, error) {
			found, missing, err := c.find(want, index)
			return look{found, missing}, err
		})
		if err != nil && last != nil && ctx.Err() != nil {
			return sysfs.Partition{}, last // more specific than the end of ctx
		}
		if err != nil || l.missing == nil {
			return l.found, err
		}
		patience := devicePatience
		if l.found.Node == nil {
			patience = nodePatience
		}
		last = l.missing
		if time.Since(start) > patience || sleep.For(ctx, lookPause) != nil {
			return sysfs.Partition{}, last
		}
	}
}

// find looks for the partition. missing says what it still lacks.
func (c *gpuHandle) find(want xcp.Mode, index int) (found sysfs.Partition, missing, err error) {
	now, err := c.ComputeMode()
	if err != nil {
		return found, nil, err
	}
	if now != want {
		return found, nil, fmt.Errorf("GPU %s: it was put into mode %s by somebody else while it was to be in %s; this is retried", c.PCIAddress, now, want)
	}
	l, err := c.Confirmed()
	if err != nil {
		return found, nil, err
	}
	if index < 0 || index >= len(l.Partitions) {
		return found, nil, fmt.Errorf("GPU %s: mode %s has %d partitions and none with index %d", c.PCIAddress, want, len(l.Partitions), index)
	}
	found = l.Partitions[index]
	if found.Node == nil {
		return found, c.missingNode(l, index), nil
	}
	if missing, err = c.missingDevice(found); missing == nil && err == nil {
		c.reportShortfall(l)
	}
	return found, missing, err
}

// missingNode says that KFD does not have a partition that the mode should have.
func (c *gpuHandle) missingNode(l sysfs.Live, index int) error {
	if len(l.Nodes()) == 0 {
		return c.WithoutKFD()
	}
	return fmt.Errorf("GPU %s: %s", c.PCIAddress, shortfall(l, index))
}

// shortfall is also the reason of an obstacle. Of the causes this one has been
// seen: https://instinct.docs.amd.com, "MI300X troubleshooting".
func shortfall(l sysfs.Live, index int) string {
	return fmt.Sprintf("KFD has only %d of the %d partitions of mode %s, and not that with index %d; does another graphics driver (ast, of the board's own display) hold a DRM device that the partition would need? Unload it and reload amdgpu",
		len(l.Nodes()), len(l.Partitions), l.Mode, index)
}

// missingDevice says that a device node is not in /dev yet.
func (c *gpuHandle) missingDevice(p sysfs.Partition) (missing, err error) {
	if err := c.CheckMinor(p); err != nil {
		return nil, err
	}
	for _, name := range devicePaths(p) {
		if _, err := c.Stat(name); sysfs.Absent(err) {
			return fmt.Errorf("GPU %s: there is no device node %s; is udev at work?", c.PCIAddress, name), nil
		} else if err != nil {
			return nil, err
		}
	}
	return nil, nil
}

// reportShortfall tells the log that partitions are missing beside the one that
// was wanted.
func (c *gpuHandle) reportShortfall(l sysfs.Live) {
	if missing := l.Missing(); len(missing) > 0 {
		c.driver.cfg.Logger.Info("A GPU has fewer partitions than its mode should have", "gpu", c.PCIAddress, "mode", l.Mode, "missing", missing)
	}
}
