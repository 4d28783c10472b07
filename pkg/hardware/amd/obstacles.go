package amd

import (
	"context"
	"fmt"

	"github.com/tranche-dev/tranche/pkg/gpu"
)

// Obstacles says what cannot be had of a GPU now: partitions of the live mode
// that KFD does not have, and, while processes keep the GPU in its mode,
// everything of another one. held means that claims hold something of the GPU:
// then the counters already exclude other modes, and the processes are mostly
// theirs.
func (d *Driver) Obstacles(ctx context.Context, pciAddress string, held bool) ([]gpu.Obstacle, error) {
	return onGPU(ctx, d, pciAddress, func(c *gpuHandle) ([]gpu.Obstacle, error) {
		l, err := c.look()
		if err != nil || l.mode == "" {
			return nil, err
		}
		placements, err := c.placements()
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
			if mode, err := modeOf(p); err != nil || mode != l.mode {
				if busy != "" {
					all = append(all, gpu.Obstacle{Placement: p.Name(), Kind: gpu.ObstacleBusy, Reason: busy})
				}
				continue
			}
			if p.Start < len(l.partitions) && l.partitions[p.Start].node == nil {
				all = append(all, gpu.Obstacle{Placement: p.Name(), Kind: gpu.ObstacleMissing, Reason: shortfall(l, p.Start)})
			}
		}
		return all, nil
	})
}

// placements are the GPU's, as Inventory last told them.
func (c *gpuHandle) placements() ([]gpu.Placement, error) {
	c.driver.mu.Lock()
	known, ok := c.driver.known[c.pciAddress]
	c.driver.mu.Unlock()
	if ok {
		return known.Placements, nil
	}
	g, err := c.describe()
	return g.Placements, err
}

// busy says which processes keep the GPU in its mode; it is empty when none do.
// That processes of other GPUs count too is only believed of a kernel that has
// shown it.
func (c *gpuHandle) busy(l live) (string, error) {
	who, err := c.processes(l)
	if err != nil {
		return "", err
	}
	if len(who.gpu) > 0 {
		return fmt.Sprintf("the GPU stays in mode %s as long as %s %s it", l.mode, names(who.gpu), use(who.gpu)), nil
	}
	if len(who.others) == 0 {
		return "", nil
	}
	load, err := c.loadID()
	if err != nil {
		return "", err
	}
	c.driver.mu.Lock()
	defer c.driver.mu.Unlock()
	if c.driver.hostBusy != load {
		return "", nil
	}
	return fmt.Sprintf("this kernel switches no GPU while any process of the host uses KFD, and %s %s; the GPU stays in mode %s", names(who.others), does(who.others), l.mode), nil
}
