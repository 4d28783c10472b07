package node

import (
	"context"
	"fmt"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/reshape"
)

// modes is the hardware as far as profiles change it as a whole. It implements
// reshape.Hardware.
type modes struct{ *hardware }

var _ reshape.Hardware = modes{}

// What a vendor's cards can have beside what claims need of them.
type (
	// moded is a vendor that tells how its cards are set.
	moded interface {
		Modes(ctx context.Context, pciAddress string) (gpu.Modes, error)
	}
	// cutter is a vendor whose cards are cut in a mode of their own.
	cutter interface {
		SetMIG(ctx context.Context, pciAddress string, on, leavePending bool) error
	}
	// computeModer is a vendor whose cards have compute modes.
	computeModer interface {
		SetComputeMode(ctx context.Context, pciAddress, mode string) error
	}
	// memoryModer is a vendor whose cards share a memory mode.
	memoryModer interface {
		SetMemoryMode(ctx context.Context, mode string) error
	}
)

// Modes implements reshape.Hardware. Cards without modes have none.
func (m modes) Modes(ctx context.Context, pciAddress string) (gpu.Modes, error) {
	o, err := m.of(pciAddress)
	if err != nil {
		return gpu.Modes{}, err
	}
	if v, ok := o.vendor.(moded); ok {
		return v.Modes(ctx, pciAddress)
	}
	return gpu.Modes{}, nil
}

// SetMIG implements reshape.Hardware.
func (m modes) SetMIG(ctx context.Context, pciAddress string, on, leavePending bool) error {
	o, err := m.of(pciAddress)
	if err != nil {
		return err
	}
	v, ok := o.vendor.(cutter)
	if !ok {
		return lacks(o, pciAddress, "MIG mode")
	}
	return v.SetMIG(ctx, pciAddress, on, leavePending)
}

// SetComputeMode implements reshape.Hardware. It hides what pkg/share means by the
// name: who may start programs on an NVIDIA card.
func (m modes) SetComputeMode(ctx context.Context, pciAddress, mode string) error {
	o, err := m.of(pciAddress)
	if err != nil {
		return err
	}
	v, ok := o.vendor.(computeModer)
	if !ok || o.name != gpu.AMD {
		return lacks(o, pciAddress, "compute partition mode")
	}
	return v.SetComputeMode(ctx, pciAddress, mode)
}

// SetMemoryMode implements reshape.Hardware.
func (m modes) SetMemoryMode(ctx context.Context, vendor gpu.Vendor, mode string) error {
	for _, o := range m.all() {
		if v, ok := o.vendor.(memoryModer); ok && o.name == vendor {
			return v.SetMemoryMode(ctx, mode)
		}
	}
	return fmt.Errorf("no driver on this node changes the memory mode of cards of %s", vendor.Title())
}

func lacks(o *opened, pciAddress, what string) error {
	return fmt.Errorf("card %s of %s has no %s", gpu.CardName(pciAddress), o.name.Title(), what)
}
