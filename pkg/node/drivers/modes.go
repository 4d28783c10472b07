package drivers

import (
	"context"
	"fmt"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware"
	"github.com/tranche-dev/tranche/pkg/partition"
)

// Modes is a Set that can change modes. It implements partition.Hardware.
type Modes struct{ *Set }

var _ partition.Hardware = Modes{}

// Modes implements partition.Hardware. It returns the zero value for GPUs without modes.
func (m Modes) Modes(ctx context.Context, pciAddress string) (gpu.Modes, error) {
	o, err := m.of(pciAddress)
	if err != nil {
		return gpu.Modes{}, err
	}
	if v, ok := o.Driver.(hardware.ModeReader); ok {
		return v.Modes(ctx, pciAddress)
	}
	return gpu.Modes{}, nil
}

// SetMIG implements partition.Hardware.
func (m Modes) SetMIG(ctx context.Context, pciAddress string, on, leavePending bool) error {
	o, err := m.of(pciAddress)
	if err != nil {
		return err
	}
	v, ok := o.Driver.(hardware.MIGSwitcher)
	if !ok {
		return lacks(o, pciAddress, "MIG mode")
	}
	return v.SetMIG(ctx, pciAddress, on, leavePending)
}

// SetComputePartition implements partition.Hardware.
func (m Modes) SetComputePartition(ctx context.Context, pciAddress, mode string) error {
	o, err := m.of(pciAddress)
	if err != nil {
		return err
	}
	v, ok := o.Driver.(hardware.PartitionModes)
	if !ok {
		return lacks(o, pciAddress, "compute partition mode")
	}
	return v.SetComputePartition(ctx, pciAddress, mode)
}

// SetMemoryPartition implements partition.Hardware.
func (m Modes) SetMemoryPartition(ctx context.Context, vendor gpu.Vendor, mode string) error {
	if o := m.Find(vendor); o != nil {
		if v, ok := o.Driver.(hardware.PartitionModes); ok {
			return v.SetMemoryPartition(ctx, mode)
		}
	}
	return fmt.Errorf("no driver on this node changes the memory mode of GPUs of %s", vendor.Title())
}

func lacks(o *Opened, pciAddress, what string) error {
	return fmt.Errorf("GPU %s of %s has no %s", gpu.NameOf(pciAddress), o.Name.Title(), what)
}
