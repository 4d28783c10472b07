package amd

import (
	"context"
	"fmt"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware/amd/sysfs"
)

// Obstacles lists the placements of a GPU that cannot be prepared now: partitions of the
// current mode for which KFD has no node, and all partitions of other modes while a process
// keeps the GPU in its mode. held means that claims hold devices of the GPU: then the
// counters exclude other modes already, and processes are not looked at.
func (d *Driver) Obstacles(ctx context.Context, pciAddress string, held bool) ([]gpu.Obstacle, error) {
	return forGPU(ctx, d, pciAddress, func(c *gpuHandle) ([]gpu.Obstacle, error) {
		l, err := c.Look()
		if err != nil || l.Mode == "" {
			return nil, err
		}
		placements, err := c.Placements()
		if err != nil {
			return nil, err
		}
		busy := ""
		if !held {
			if busy, err = c.busy(l); err != nil {
				return nil, err
			}
		}
		var all []gpu.Obstacle
		for _, p := range placements {
			if mode, err := modeOf(p); err != nil || mode != l.Mode {
				if busy != "" {
					all = append(all, gpu.Obstacle{Placement: p.Name(), Kind: gpu.ObstacleBusy, Reason: busy})
				}
				continue
			}
			if p.Start < len(l.Partitions) && l.Partitions[p.Start].Node == nil {
				all = append(all, gpu.Obstacle{Placement: p.Name(), Kind: gpu.ObstacleMissing, Reason: shortfall(l, p.Start)})
			}
		}
		return all, nil
	})
}

// busy names the processes that keep the GPU in its mode, empty if there are none.
// Processes of other GPUs count only on a kernel that was seen to refuse a switch because of
// them.
func (c *gpuHandle) busy(l sysfs.Live) (string, error) {
	who, err := sysfs.ProcessesOf(c.Task, l.GPUIDs())
	if err != nil {
		return "", err
	}
	if len(who.OnGPU) > 0 {
		return fmt.Sprintf("the GPU stays in mode %s as long as %s it", l.Mode, sysfs.Listed(who.OnGPU, "uses", "use")), nil
	}
	if len(who.Others) == 0 {
		return "", nil
	}
	load, err := sysfs.LoadID(c.Task)
	if err != nil {
		return "", err
	}
	c.driver.mu.Lock()
	defer c.driver.mu.Unlock()
	if c.driver.hostBusy != load {
		return "", nil
	}
	return fmt.Sprintf("this kernel switches no GPU while any process of the host uses KFD, and %s; the GPU stays in mode %s", sysfs.Listed(who.Others, "does", "do"), l.Mode), nil
}
