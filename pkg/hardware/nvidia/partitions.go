package nvidia

import (
	"context"
	"fmt"

	cdispecs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware/mig"
	"github.com/tranche-dev/tranche/pkg/hardware/nvidia/session"
)

// Live implements hardware.Driver.
func (d *Driver) Live(ctx context.Context, pciAddress string) ([]gpu.Partition, error) {
	return onGPU(ctx, d, pciAddress, func(h *handle) ([]gpu.Partition, error) { return h.Live() })
}

// Create implements hardware.Driver.
func (d *Driver) Create(ctx context.Context, p gpu.Placement) (gpu.Partition, error) {
	return onGPU(ctx, d, p.GPU, func(h *handle) (gpu.Partition, error) { return h.Create(p) }) //nolint:contextcheck // the handle has it
}

// Destroy implements hardware.Driver. A whole GPU has nothing to remove, and its MIG
// mode stays: the next claim may need it either way.
func (d *Driver) Destroy(ctx context.Context, p gpu.Placement) error {
	if p.Type == gpu.TypeGPU {
		return nil
	}
	_, err := onGPU(ctx, d, p.GPU, func(h *handle) (struct{}, error) { return struct{}{}, h.Destroy(p) })
	return err
}

// Edits implements hardware.Driver.
func (d *Driver) Edits(ctx context.Context, p gpu.Placement) (*cdispecs.ContainerEdits, error) {
	return onGPU(ctx, d, p.GPU, func(h *handle) (*cdispecs.ContainerEdits, error) {
		switch p.Type {
		case gpu.TypeGPU:
			return d.files.GPU(h.GPU)
		case gpu.TypeMonitor:
			return d.files.Monitor(h.GPU)
		}
		gi, ci, err := h.Find(p)
		if err != nil {
			return nil, err
		}
		return d.files.Instance(h.GPU, gi, ci, mig.VariantIn(p.Profile) == mig.WithGraphics)
	})
}

// CommonEdits implements hardware.Driver. They are the same for all GPUs.
func (d *Driver) CommonEdits(ctx context.Context, _ []string) (*cdispecs.ContainerEdits, error) {
	edits, err := session.OnLibrary(ctx, d.session, d.files.Common)
	if err != nil {
		return nil, fmt.Errorf("driver files for containers: %w", err)
	}
	return edits, nil
}

// Modes implements hardware.Driver.
func (d *Driver) Modes(ctx context.Context, pciAddress string) (gpu.Modes, error) {
	return onGPU(ctx, d, pciAddress, func(h *handle) (gpu.Modes, error) { return h.Modes() })
}

// SetMIG implements hardware.Driver.
func (d *Driver) SetMIG(ctx context.Context, pciAddress string, on, leavePending bool) error {
	s := session.Switcher{Session: d.session, Run: d.cfg.Run, Logger: d.cfg.Logger}
	return s.SetMIG(ctx, pciAddress, on, leavePending)
}
