package partition

import (
	"context"

	"github.com/tranche-dev/tranche/pkg/gpu"
)

// Hardware is the GPUs of a node, as far as their shape goes. The caller holds the
// locks of the GPUs, or of all GPUs of the vendor for SetMemoryPartition.
//
// Every call returns when ctx ends, with an error that says what it was waiting for.
type Hardware interface {
	// Live, Create and Destroy are those of hardware.Partitioner.
	Live(ctx context.Context, pciAddress string) ([]gpu.Partition, error)
	Create(ctx context.Context, p gpu.Placement) (gpu.Partition, error)
	Destroy(ctx context.Context, p gpu.Placement) error

	// Modes reads how the GPU is set now.
	Modes(ctx context.Context, pciAddress string) (gpu.Modes, error)

	// SetMIG switches MIG on or off and reads it back. A GPU that needs a reset is
	// reset if nothing but us is on it; otherwise the error is gpu.ErrNeedsReset and
	// nothing is pending any more, unless leavePending asks for it: a reboot is
	// coming. A GPU in use fails with gpu.ErrInUse, named.
	SetMIG(ctx context.Context, pciAddress string, on, leavePending bool) error

	// SetComputePartition puts an AMD GPU into a mode and reads it back: mode, number of
	// partitions, render nodes.
	SetComputePartition(ctx context.Context, pciAddress, mode string) error

	// SetMemoryPartition puts all GPUs of the vendor into a memory mode by loading the
	// driver anew, and reads it back. One that came up in the mode before fails with
	// gpu.ErrModeLost. Whatever happens, a driver is loaded at the end, or the error
	// says that none could be.
	SetMemoryPartition(ctx context.Context, vendor gpu.Vendor, mode string) error
}
