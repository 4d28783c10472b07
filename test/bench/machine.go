package main

import (
	"context"
	"fmt"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/publish/models"
	"github.com/tranche-dev/tranche/test/nodes"
)

const nodeName = "node-a"

// gpusOf reads an inventory of one vendor the way the plugin does: NVIDIA's
// through NVML, AMD's from the files of the kernel.
func (b *bench) gpusOf(ctx context.Context, name string) ([]gpu.GPU, error) {
	inv, err := models.LoadInventory(name)
	if err != nil {
		return nil, err
	}
	if len(inv.AMD) > 0 {
		return b.amdGPUsOf(ctx, inv)
	}
	return nodes.NVIDIAGPUs(ctx, inv, "node", b.dir)
}

// slicesOf are the API objects of a node with these GPUs.
func slicesOf(gpus []gpu.GPU) ([]*resourceapi.ResourceSlice, error) {
	return nodes.Slices(nodeName, gpus)
}

// manyGPUs copies a GPU often enough, at addresses of their own.
func manyGPUs(g gpu.GPU, count int) []gpu.GPU {
	gpus := make([]gpu.GPU, count)
	for i := range gpus {
		c := g
		c.PCIAddress, c.Index, c.Minor = fmt.Sprintf("0000:%02x:00.0", i+1), i, i
		c.UUID = fmt.Sprintf("GPU-%08d-0000-4000-8000-000000000000", i)
		c.Placements = make([]gpu.Placement, len(g.Placements))
		for j, p := range g.Placements {
			p.GPU = c.PCIAddress
			c.Placements[j] = p
		}
		gpus[i] = c
	}
	return gpus
}
