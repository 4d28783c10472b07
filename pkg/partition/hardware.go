package partition

import (
	"context"

	"github.com/tranche-dev/tranche/pkg/gpu"
)

// Hardware reads and changes the layout of a node's GPUs. The caller holds the locks of
// the GPUs, or of all GPUs of the vendor for SetMemoryPartition.
//
// Every call returns when ctx ends, with an error that says what it was waiting for.
type Hardware interface {
	// Live, Create and Destroy are those of hardware.Partitioner.
	Live(ctx context.Context, pciAddress string) ([]gpu.Partition, error)
	Create(ctx context.Context, p gpu.Placement) (gpu.Partition, error)
	Destroy(ctx context.Context, p gpu.Placement) error

	// Modes reads the current modes of the GPU.
	Modes(ctx context.Context, pciAddress string) (gpu.Modes, error)

	// SetMIG switches MIG on or off and reads it back. A GPU that needs a reset is reset if
	// no other process uses it. Otherwise the error is gpu.ErrNeedsReset, and the change
	// stays pending only with leavePending, before a reboot. If the GPU is in use, the error
	// is gpu.ErrInUse and names the process.
	SetMIG(ctx context.Context, pciAddress string, on, leavePending bool) error

	// SetComputePartition puts an AMD GPU into a mode and reads it back: mode, number of
	// partitions, render nodes.
	SetComputePartition(ctx context.Context, pciAddress, mode string) error

	// SetMemoryPartition puts all GPUs of the vendor into a memory mode by reloading the
	// driver, and reads it back. If the driver starts in the previous mode, the error is
	// gpu.ErrModeLost. Afterwards a driver is loaded, or the error says that none could be.
	SetMemoryPartition(ctx context.Context, vendor gpu.Vendor, mode string) error
}
