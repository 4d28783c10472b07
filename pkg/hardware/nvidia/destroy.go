package nvidia

import (
	"context"
	"errors"
	"fmt"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/tranche-dev/tranche/pkg/gpu"
)

// Destroy removes the partition at the placement. See hardware.Partitioner.
//
// A whole GPU has nothing to remove, and its MIG mode stays: the next claim
// may want it either way.
func (d *Driver) Destroy(ctx context.Context, p gpu.Placement) error {
	if p.Type == gpu.TypeGPU {
		return nil
	}
	_, err := onGPU(ctx, d, p.GPU, func(c *gpuHandle) (struct{}, error) {
		instances, err := c.instances()
		if err != nil {
			return struct{}{}, err
		}
		for _, i := range instances {
			if i.partition(c.pciAddress).Is(p) {
				return struct{}{}, c.destroyInstance(i)
			}
		}
		return struct{}{}, nil
	})
	return err
}

// destroyInstance removes a GPU instance with what is in it, the compute
// instances first, as they are now and not as they were when i was read: an
// earlier try may have got halfway.
func (c *gpuHandle) destroyInstance(i instance) error {
	compute, err := c.computeInstances(i.handle)
	if err != nil {
		return fmt.Errorf("GPU instance %d: %w", i.id, err)
	}
	for _, ci := range compute {
		if err := c.destroy("ComputeInstanceDestroy", i.id, ci.handle.Destroy); err != nil {
			return fmt.Errorf("compute instance %d of GPU instance %d: %w", ci.id, i.id, err)
		}
	}
	if err := c.destroy("GpuInstanceDestroy", i.id, i.handle.Destroy); err != nil {
		return fmt.Errorf("GPU instance %d: %w", i.id, err)
	}
	return nil
}

// destroy makes one call that removes something. What is gone already is
// success.
func (c *gpuHandle) destroy(call string, instance int, f func() nvml.Return) error {
	err := tell(c.task, call, f)
	if errors.Is(err, nvml.ERROR_NOT_FOUND) {
		return nil
	}
	return c.explainClients(err, instance)
}
