package instance

import (
	"errors"
	"fmt"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware/nvidia/session"
)

// Destroy removes the partition at the placement. See hardware.Partitioner.
func (c *GPU) Destroy(p gpu.Placement) error {
	instances, err := c.instances()
	if err != nil {
		return err
	}
	for _, i := range instances {
		if i.partition(c.PCIAddress).Is(p) {
			return c.destroyInstance(i)
		}
	}
	return nil
}

// destroyInstance removes a GPU instance with what is in it, the compute
// instances first, as they are now and not as they were when i was read: an
// earlier try may have got halfway.
func (c *GPU) destroyInstance(i instance) error {
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
func (c *GPU) destroy(call string, instance int, f func() nvml.Return) error {
	err := session.Tell(c.Task, call, f)
	if errors.Is(err, nvml.ERROR_NOT_FOUND) {
		return nil
	}
	return c.explainClients(err, instance)
}
