package nvidia

import (
	"context"
	"fmt"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware/mig"
	"github.com/tranche-dev/tranche/pkg/hardware/nvidia/instance"
)

// Obstacles lists the placements that a GPU cannot provide now, although no claim
// conflicts with them: those that need the other MIG mode, while a process keeps the
// GPU from changing it. Without this, every pod that asks for such a placement would
// be scheduled to the same GPU and fail there. held says that a claim holds something
// on the GPU: then it stays in its mode anyway, and its processes are the claim's.
func (d *Driver) Obstacles(ctx context.Context, pciAddress string, held bool) ([]gpu.Obstacle, error) {
	if held {
		return nil, nil
	}
	return onGPU(ctx, d, pciAddress, func(c *gpuHandle) ([]gpu.Obstacle, error) {
		mode, err := c.Mode()
		if err != nil || !mode.Switchable {
			return nil, err // the GPU offers nothing that needs the other mode
		}
		pids, err := c.Clients()
		if err != nil || len(pids) == 0 {
			return nil, err
		}
		facts, profiles, err := c.abilities()
		if err != nil {
			return nil, err
		}
		placements, _ := mig.Devices(facts, profiles)
		reason := fmt.Sprintf("MIG stays %s as long as %s, which no claim explains, %s the GPU", instance.OnOff(mode.On), instance.PIDList(pids), use(pids))
		var all []gpu.Obstacle
		for _, p := range placements {
			if (p.Type == gpu.TypeMIG) != mode.On {
				all = append(all, gpu.Obstacle{Placement: p.Name(), Kind: gpu.ObstacleBusy, Reason: reason})
			}
		}
		return all, nil
	})
}

func use(pids []int) string {
	if len(pids) == 1 {
		return "uses"
	}
	return "use"
}
