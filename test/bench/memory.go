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
)

// memory is hardware that answers at once, out of memory. It implements
// claim.Hardware.
type memory struct {
	cards []gpu.GPU
	// creation is how long it takes to make a partition.
	creation time.Duration

	// mu protects what follows.
	mu    sync.Mutex
	parts map[string][]gpu.Partition
	made  int
}

var _ claim.Hardware = (*memory)(nil)

// Inventory implements claim.Hardware.
func (h *memory) Inventory(context.Context) ([]gpu.GPU, error) { return h.cards, nil }

// Live implements claim.Hardware.
func (h *memory) Live(_ context.Context, card string) ([]gpu.Partition, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.parts[card]), nil
}

// Create implements claim.Hardware.
func (h *memory) Create(_ context.Context, p gpu.Placement) (gpu.Partition, error) {
	time.Sleep(h.creation)
	h.mu.Lock()
	defer h.mu.Unlock()
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

// Destroy implements claim.Hardware.
func (h *memory) Destroy(_ context.Context, p gpu.Placement) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.parts[p.GPU] = slices.DeleteFunc(h.parts[p.GPU], func(part gpu.Partition) bool { return part.Is(p) })
	return nil
}

// Edits implements claim.Hardware.
func (h *memory) Edits(context.Context, gpu.Placement) (*cdispecs.ContainerEdits, error) {
	return partitionEdits(), nil
}

// CommonEdits implements claim.Hardware.
func (h *memory) CommonEdits(context.Context, []string) (*cdispecs.ContainerEdits, error) {
	return commonEdits(), nil
}
