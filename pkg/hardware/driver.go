package hardware

import (
	"context"

	cdispecs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/tranche-dev/tranche/pkg/gpu"
)

// Driver is the GPUs of one vendor on a machine, through their driver. Every method
// returns when ctx ends, with an error that says what it was waiting for. GPUs are
// named by their PCI addresses. Methods may be called concurrently, except as
// documented for Partitioner.
//
// A driver also implements those of [MIGSwitcher], [PartitionModes], [TimeSlicer],
// [ModeReader], [UsageReader], [Obstructed], [ForeignRemover] and [Releaser] that apply to
// its GPUs.
type Driver interface {
	Partitioner
	HealthChecker

	// LoadID identifies this boot and this load of the kernel driver. What the
	// hardware lost by an unload has another LoadID than what there is now. It fails
	// with fs.ErrNotExist if the driver is not loaded.
	LoadID() (string, error)
	// Close ends the use of the driver.
	Close(ctx context.Context) error
}

// Partitioner creates and destroys partitions. The caller holds the lock of a GPU
// while it calls Create, Destroy or Live for it; calls for different GPUs may come
// concurrently. Errors need not name the placement: the caller does.
type Partitioner interface {
	// Inventory lists the GPUs in PCI order, with all their placements. GPUs that do
	// not answer are named by a gpu.InventoryError.
	Inventory(ctx context.Context) ([]gpu.GPU, error)

	// Live lists the partitions that exist on a GPU now, incomplete ones included. It
	// is empty for a whole GPU.
	Live(ctx context.Context, pciAddress string) ([]gpu.Partition, error)

	// Create makes the placement exist and returns what the hardware says it is. It
	// completes what an earlier call left incomplete at this placement, and returns
	// what exists already. For a whole GPU it makes sure that the GPU has no
	// partitions. For a partition that follows the GPU's mode it switches the GPU;
	// the caller makes sure that nobody holds a partition of another mode. A call
	// that fails leaves nothing behind, or its error names what it could not remove.
	Create(ctx context.Context, p gpu.Placement) (gpu.Partition, error)

	// Destroy removes the partition at the placement, complete or not. It succeeds
	// if there is none, and fails with gpu.ErrInUse if a process uses it. For a whole
	// GPU, or a partition that follows the GPU's mode, it does nothing.
	Destroy(ctx context.Context, p gpu.Placement) error

	// Edits returns what a container needs to use the placement, which exists.
	Edits(ctx context.Context, p gpu.Placement) (*cdispecs.ContainerEdits, error)

	// CommonEdits returns what a container needs beside its devices on these GPUs:
	// driver files, hooks and environment variables.
	CommonEdits(ctx context.Context, pciAddresses []string) (*cdispecs.ContainerEdits, error)
}

// HealthChecker knows whether GPUs are healthy.
type HealthChecker interface {
	// WatchHealth reports errors of GPUs until ctx ends.
	WatchHealth(ctx context.Context, report func(gpu.HealthEvent)) error
	// CheckHealth returns what is wrong with a GPU now, nil for a healthy one.
	CheckHealth(ctx context.Context, pciAddress string) error
	// Recovered tells whether the cause of a fatal event is gone.
	Recovered(ctx context.Context, e gpu.HealthEvent) (bool, error)
}

// ModeReader is implemented for GPUs with modes. Profiles are planned from what it
// returns (pkg/partition): a mode that gpu.Modes leaves empty is one that the GPU does
// not have.
type ModeReader interface {
	// Modes reads the modes of a GPU, and those it can be put into.
	Modes(ctx context.Context, pciAddress string) (gpu.Modes, error)
}

// MIGSwitcher is implemented for GPUs that can be partitioned only in MIG mode.
type MIGSwitcher interface {
	ModeReader
	// SetMIG switches MIG mode on or off and reads it back. A GPU that needs a reset
	// is reset if nothing else uses it. Otherwise it fails with gpu.ErrNeedsReset and
	// cancels the pending mode, unless leavePending is set because a reboot follows.
	// A GPU in use fails with gpu.ErrInUse, naming the processes.
	SetMIG(ctx context.Context, pciAddress string, on, leavePending bool) error
}

// PartitionModes is implemented for GPUs whose partitions follow from a compute
// partition mode (SPX, CPX, ...) and a memory partition mode (NPS1, NPS4, ...).
type PartitionModes interface {
	ModeReader
	// SetComputePartition puts a GPU into a mode and reads it back: mode, number of
	// partitions and render nodes.
	SetComputePartition(ctx context.Context, pciAddress, mode string) error
	// SetMemoryPartition puts all GPUs of the vendor into a mode by reloading the
	// driver, and reads it back. It fails with gpu.ErrModeLost if they came up in the
	// old mode. Whatever happens, a driver is loaded at the end, or the error says
	// that none could be loaded.
	SetMemoryPartition(ctx context.Context, mode string) error
}

// TimeSlicer is implemented for GPUs on which Tranche sets how processes share them.
type TimeSlicer interface {
	// SetTimeSlice sets how long a process runs before it is another's turn. It fails
	// with gpu.ErrNotSupported on a GPU without this setting.
	SetTimeSlice(ctx context.Context, pciAddress string, slice gpu.TimeSlice) error
	// Settings reads the settings of a GPU.
	Settings(ctx context.Context, pciAddress string) (gpu.Settings, error)
	// SetComputeMode sets which processes may use a GPU: one of the modes of
	// gpu.Settings. It has nothing to do with partitions.
	SetComputeMode(ctx context.Context, pciAddress, mode string) error
}

// UsageReader is implemented for GPUs that tell how much they are used.
type UsageReader interface {
	// Usage measures a GPU, its partitions and its processes. What cannot be measured is
	// absent. It is called at intervals, and must not keep others long from the GPU.
	Usage(ctx context.Context, pciAddress string) (gpu.Usage, error)
}

// Obstructed is implemented for GPUs whose mode cannot always change.
type Obstructed interface {
	// Obstacles returns what cannot be allocated of a GPU now although no claim is in
	// the way. held tells whether a claim holds something of the GPU.
	Obstacles(ctx context.Context, pciAddress string, held bool) ([]gpu.Obstacle, error)
}

// ForeignRemover is implemented for GPUs on which others can make partitions.
type ForeignRemover interface {
	// RemovalCommand is what a person types on the node to remove a partition.
	RemovalCommand(p gpu.Partition) string
}

// Releaser is implemented by a driver that must be released before it can be replaced.
type Releaser interface {
	// Release ends the use of the driver for good, and waits for calls in progress.
	Release(ctx context.Context) error
}
