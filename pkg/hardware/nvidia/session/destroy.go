package session

import (
	"fmt"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/tranche-dev/tranche/pkg/gpu"
)

// Destroy removes the partition at the placement. See hardware.Driver.
func (g *GPU) Destroy(p gpu.Placement) error {
	instances, err := g.instances()
	if err != nil {
		return err
	}
	for _, i := range instances {
		if i.partition(g.PCIAddress).Is(p) {
			return g.destroyInstance(i)
		}
	}
	return nil
}

// destroyInstance destroys a GPU instance, and first the compute instances in it. It reads
// them again: an earlier try may have destroyed some of them.
func (g *GPU) destroyInstance(i instance) error {
	compute, err := g.computeInstances(i.handle)
	if err != nil {
		return fmt.Errorf("GPU instance %d: %w", i.id, err)
	}
	for _, ci := range compute {
		if err := g.destroy("ComputeInstanceDestroy", i.id, ci.handle.Destroy); err != nil {
			return fmt.Errorf("compute instance %d of GPU instance %d: %w", ci.id, i.id, err)
		}
	}
	if err := g.destroy("GpuInstanceDestroy", i.id, i.handle.Destroy); err != nil {
		return fmt.Errorf("GPU instance %d: %w", i.id, err)
	}
	return nil
}

// destroy makes one call that destroys something. It fails, too, if that does not exist any more,
// which the next try finds: the codes for it also have other causes.
func (g *GPU) destroy(call string, instance int, f func() nvml.Return) error {
	return g.explainClients(Tell(g.Task, call, f), instance)
}
