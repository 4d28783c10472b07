package amd

import (
	"context"
	"fmt"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware/amd/sysfs"
	"github.com/tranche-dev/tranche/pkg/hardware/xcp"
)

// Create puts the GPU into the mode of the placement, if it is in another, and waits until
// the partition can be used. An attempt that was interrupted is finished by the next. See
// hardware.Driver.
//
// Between two tries the GPU's gate is open, so that reads need not wait for processes to
// end. Nobody else switches the GPU meanwhile: the caller holds its lock.
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
	return forGPU(ctx, d, p.GPU, func(c *gpuHandle) (gpu.Partition, error) {
		if p.Type == gpu.TypeXCP {
			return c.Partition(want, found), nil
		}
		uuid, err := c.UUID()
		return gpu.Partition{
			GPU: p.GPU, Type: p.Type, Profile: p.Profile, UUID: uuid,
			Complete: true, ID: sysfs.RenderName(found.Node.Minor),
		}, err
	})
}

// Destroy does nothing: the mode stays until a claim needs another one.
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
