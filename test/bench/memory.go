package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	cdispecs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/tranche-dev/tranche/pkg/claim"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware"
)

// memory is hardware that answers at once, out of memory. It implements
// hardware.Driver.
type memory struct {
	hardware.Driver
	gpus []gpu.GPU
	// creation is how long it takes to make a partition.
	creation time.Duration
	// shares sets up shares of the GPUs; nil: there are none.
	shares claim.Sharer

	// mu protects what follows.
	mu    sync.Mutex
	parts map[string][]gpu.Partition
	made  int
}

// inMode are GPUs of AMD's that are in the mode of a profile already.
func inMode(gpus []gpu.GPU, profile string) *memory {
	h := &memory{gpus: gpus, parts: map[string][]gpu.Partition{}}
	for _, g := range gpus {
		for _, p := range g.Placements {
			if p.Profile == profile {
				h.parts[p.GPU] = append(h.parts[p.GPU], gpu.Partition{
					GPU: p.GPU, Type: p.Type, Profile: p.Profile, Start: p.Start,
					UUID: fmt.Sprintf("%s-%d", g.UUID, p.Start), Complete: true, ID: fmt.Sprintf("renderD%d", 128+p.Start),
				})
			}
		}
	}
	return h
}

func (h *memory) driver(string) (hardware.Driver, error) { return h, nil }

func (h *memory) Inventory(context.Context) ([]gpu.GPU, error) { return h.gpus, nil }

func (h *memory) Live(_ context.Context, gpuID string) ([]gpu.Partition, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.parts[gpuID]), nil
}

func (h *memory) Create(_ context.Context, p gpu.Placement) (gpu.Partition, error) {
	time.Sleep(h.creation)
	h.mu.Lock()
	defer h.mu.Unlock()
	if p.Type == gpu.TypeGPU {
		return gpu.Partition{GPU: p.GPU, Type: p.Type, UUID: "GPU-" + p.GPUName(), Complete: true}, nil
	}
	if p.Type.FollowsMode() {
		for _, part := range h.parts[p.GPU] {
			if part.Is(p) {
				return part, nil
			}
		}
		return gpu.Partition{}, fmt.Errorf("the GPU of %s is in another mode", p.Name())
	}
	h.made++
	part := gpu.Partition{
		GPU: p.GPU, Type: p.Type, Profile: p.Profile, Start: p.Start, Size: p.Size,
		UUID: fmt.Sprintf("MIG-%08d-0000-4000-8000-000000000000", h.made), Complete: true, ID: "GI 1",
	}
	if h.parts == nil {
		h.parts = map[string][]gpu.Partition{}
	}
	h.parts[p.GPU] = append(h.parts[p.GPU], part)
	return part, nil
}

func (h *memory) Destroy(_ context.Context, p gpu.Placement) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if p.Type.FollowsMode() {
		return nil
	}
	h.parts[p.GPU] = slices.DeleteFunc(h.parts[p.GPU], func(part gpu.Partition) bool { return part.Is(p) })
	return nil
}

func (h *memory) Edits(_ context.Context, p gpu.Placement) (*cdispecs.ContainerEdits, error) {
	if p.Type.FollowsMode() {
		return renderNodeEdits(p.Start), nil
	}
	return partitionEdits(), nil
}

func (h *memory) CommonEdits(context.Context, []string) (*cdispecs.ContainerEdits, error) {
	if h.gpus[0].Vendor == gpu.AMD {
		return kfdEdits(), nil
	}
	return commonEdits(), nil
}

func (h *memory) Modes(context.Context, string) (gpu.Modes, error) { return gpu.Modes{}, nil }
