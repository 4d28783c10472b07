package nvidia

import (
	"context"
	"fmt"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware/mig"
	"github.com/tranche-dev/tranche/pkg/hardware/nvidia/session"
)

// Obstacles implements hardware.Driver: placements that need the other MIG mode cannot
// be allocated while a process uses the GPU. Without this, every pod that requests one would
// be scheduled to the same GPU and fail there. If a claim holds part of the GPU there are
// none: the processes are the claim's, and the GPU stays in its mode anyway.
func (d *Driver) Obstacles(ctx context.Context, pciAddress string, held bool) ([]gpu.Obstacle, error) {
	if held {
		return nil, nil
	}
	return onGPU(ctx, d, pciAddress, func(h *handle) ([]gpu.Obstacle, error) {
		mode, err := h.Mode()
		if err != nil || !mode.Switchable {
			return nil, err // it offers nothing that needs the other mode
		}
		pids, err := h.Clients()
		if err != nil || len(pids) == 0 {
			return nil, err
		}
		facts, profiles, err := h.abilities()
		if err != nil {
			return nil, err
		}
		placements, _ := mig.Devices(facts, profiles)
		reason := fmt.Sprintf("MIG stays %s as long as %s, which no claim explains, %s the GPU", session.OnOff(mode.On), session.PIDList(pids), use(pids))
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
