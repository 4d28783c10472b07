package claim

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"

	cdispecs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware"
	"github.com/tranche-dev/tranche/test/claims"
)

// fakeHardware keeps partitions in memory. Hooks run before a call takes effect
// and make it fail; they may block, to hold a call in its place.
type fakeHardware struct {
	hardware.Driver
	// modes are those of all GPUs.
	modes gpu.Modes
	gpus  []gpu.GPU

	mu    sync.Mutex
	parts []gpu.Partition
	// made numbers the partitions: each gets a UUID of its own.
	made int
	// destroyed lists what was really removed, in order.
	destroyed []string

	onCreate, onDestroy func(ctx context.Context, p gpu.Placement) error
	onLive              func(gpuID string) error
	onEdits             func(p gpu.Placement) error
	onCommon            func() error
	// loadID is that of every GPU's driver, but for those in loads.
	loadID string
	loads  map[string]string
}

func newFakeHardware(gpus int) *fakeHardware {
	h := &fakeHardware{loadID: "boot-1"}
	for n := range gpus {
		h.gpus = append(h.gpus, claims.GPU(n))
	}
	return h
}

func (h *fakeHardware) driver(string) (hardware.Driver, error) { return h, nil }

func (h *fakeHardware) loadOf(gpuID string) string { return cmp.Or(h.loads[gpuID], h.loadID) }

func (h *fakeHardware) Inventory(context.Context) ([]gpu.GPU, error) { return h.gpus, nil }

func (h *fakeHardware) Modes(context.Context, string) (gpu.Modes, error) { return h.modes, nil }

func (h *fakeHardware) Live(_ context.Context, gpuID string) ([]gpu.Partition, error) {
	if h.onLive != nil {
		if err := h.onLive(gpuID); err != nil {
			return nil, err
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(h.parts), func(p gpu.Partition) bool { return p.GPU != gpuID }), nil
}

func (h *fakeHardware) Create(ctx context.Context, p gpu.Placement) (gpu.Partition, error) {
	if h.onCreate != nil {
		if err := h.onCreate(ctx, p); err != nil {
			return gpu.Partition{}, err
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for i, part := range h.parts {
		if p.Type == gpu.TypeMIG && part.Is(p) {
			h.parts[i].Complete = true
			if part.UUID == "" {
				h.parts[i].UUID = h.nextUUID()
			}
			return h.parts[i], nil
		}
		if part.Overlaps(p) {
			return gpu.Partition{}, fmt.Errorf("%s is taken by %s", p.Name(), part.Name())
		}
	}
	if p.Type == gpu.TypeGPU {
		return gpu.Partition{GPU: p.GPU, Type: gpu.TypeGPU, UUID: "GPU-" + p.GPU, Complete: true}, nil
	}
	part := claims.PartitionAt(p, h.nextUUID())
	h.parts = append(h.parts, part)
	return part, nil
}

func (h *fakeHardware) Destroy(ctx context.Context, p gpu.Placement) error {
	if h.onDestroy != nil {
		if err := h.onDestroy(ctx, p); err != nil {
			return err
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.parts = slices.DeleteFunc(h.parts, func(part gpu.Partition) bool {
		if !part.Is(p) {
			return false
		}
		h.destroyed = append(h.destroyed, part.UUID)
		return true
	})
	return nil
}

func (h *fakeHardware) Edits(_ context.Context, p gpu.Placement) (*cdispecs.ContainerEdits, error) {
	if h.onEdits != nil {
		if err := h.onEdits(p); err != nil {
			return nil, err
		}
	}
	return &cdispecs.ContainerEdits{DeviceNodes: []*cdispecs.DeviceNode{{Path: "/dev/" + p.Name()}}}, nil
}

func (h *fakeHardware) CommonEdits(context.Context, []string) (*cdispecs.ContainerEdits, error) {
	if h.onCommon != nil {
		if err := h.onCommon(); err != nil {
			return nil, err
		}
	}
	return &cdispecs.ContainerEdits{Env: []string{"NVIDIA_VISIBLE_DEVICES=void"}}, nil
}

func (h *fakeHardware) nextUUID() string {
	h.made++
	return fmt.Sprintf("MIG-%d", h.made)
}

// add puts a partition there without any claim; lose takes all away without a
// word, as a reboot does.
func (h *fakeHardware) add(p gpu.Placement, uuid string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.parts = append(h.parts, claims.PartitionAt(p, uuid))
}

func (h *fakeHardware) lose() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.parts = nil
}

// names lists what exists, in order.
func (h *fakeHardware) names() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	names := []string{}
	for _, p := range h.parts {
		names = append(names, p.Name())
	}
	slices.Sort(names)
	return names
}
