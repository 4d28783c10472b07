package hardware

import (
	"context"
	"fmt"

	cdispecs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/tranche-dev/tranche/pkg/gpu"
)

// Lookup returns the driver of a GPU, or why no driver on this node can be used for it.
type Lookup func(pciAddress string) (Driver, error)

// RemovalCommand returns the RemovalCommand of the partition's driver; empty without a driver.
func (of Lookup) RemovalCommand(p gpu.Partition) string {
	driver, err := of(p.GPU)
	if err != nil {
		return ""
	}
	return driver.RemovalCommand(p)
}

// Driver is the GPUs of one vendor on a machine, through their driver. Every method
// returns when ctx ends, with an error that says what it was waiting for. GPUs are
// named by their PCI addresses. Methods may be called concurrently. The caller holds the lock
// of a GPU while it calls Live, Create, Destroy or a method that sets something for it.
// Errors need not name the placement: the caller does.
//
// What only some GPUs can do is listed at the end: a driver embeds [Basic] and implements
// what applies to its GPUs.
type Driver interface {
	// LoadID identifies this boot and this load of the kernel driver. What the
	// hardware lost by an unload has another LoadID than what there is now. It fails
	// with fs.ErrNotExist if the driver is not loaded.
	LoadID() (string, error)
	// Close ends the use of the driver. It does not wait for calls that hang.
	Close(ctx context.Context) error

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

	// WatchHealth reports errors of GPUs until ctx ends.
	WatchHealth(ctx context.Context, report func(gpu.HealthEvent)) error
	// CheckHealth returns what is wrong with a GPU now, nil for a healthy one.
	CheckHealth(ctx context.Context, pciAddress string) error
	// Recovered reports whether the cause of a fatal event is gone.
	Recovered(ctx context.Context, e gpu.HealthEvent) (bool, error)

	// Modes reads the modes of a GPU, and those it can be put into. Profiles are planned
	// from them (pkg/partition): a mode that is empty is one that the GPU does not have.
	Modes(ctx context.Context, pciAddress string) (gpu.Modes, error)
	// SetMIG switches MIG mode on or off and reads it back. A GPU that needs a reset
	// is reset if nothing else uses it. Otherwise it fails with gpu.ErrNeedsReset and
	// cancels the pending mode, unless leavePending is set because a reboot follows.
	// A GPU in use fails with gpu.ErrInUse, naming the processes.
	SetMIG(ctx context.Context, pciAddress string, on, leavePending bool) error
	// SetComputePartition puts a GPU into a compute partition mode (SPX, CPX, ...) and reads
	// it back: mode, number of partitions and render nodes.
	SetComputePartition(ctx context.Context, pciAddress, mode string) error
	// SetMemoryPartition puts all GPUs of the vendor into a memory partition mode (NPS1,
	// NPS4, ...) by reloading the driver, and reads it back. It fails with gpu.ErrModeLost if
	// they came up in the old mode. Whatever happens, a driver is loaded at the end, or the
	// error says that none could be loaded.
	SetMemoryPartition(ctx context.Context, mode string) error

	// Settings reads the settings of a GPU that sharing changes.
	Settings(ctx context.Context, pciAddress string) (gpu.Settings, error)
	// SetTimeSlice sets how long a process runs before it is another's turn. It fails
	// with gpu.ErrNotSupported on a GPU without this setting.
	SetTimeSlice(ctx context.Context, pciAddress string, slice gpu.TimeSlice) error
	// SetComputeMode sets which processes may use a GPU: one of the modes of
	// gpu.Settings. It has nothing to do with partitions.
	SetComputeMode(ctx context.Context, pciAddress, mode string) error

	// SetMemoryLimit limits the memory of the GPU that the processes of a control group, and of
	// those below it, have together. limit.Used does not count; the zero limit: none. group is the
	// folder of the group, as this process sees it. It fails with gpu.ErrNotSupported if nothing on
	// the machine limits the GPU's memory. That it succeeds does not say that the limit is in force:
	// see MemoryLimit.
	SetMemoryLimit(ctx context.Context, pciAddress, group string, limit gpu.MemoryLimit) error
	// MemoryLimit reads the limit of a control group.
	MemoryLimit(ctx context.Context, pciAddress, group string) (gpu.MemoryLimit, error)

	// Usage measures a GPU, its partitions and its processes. What cannot be measured is
	// absent. It is called at intervals, and must not keep others long from the GPU.
	Usage(ctx context.Context, pciAddress string) (gpu.Usage, error)
	// Obstacles returns what cannot be allocated of a GPU now although no claim is in
	// the way. held: a claim holds something of the GPU.
	Obstacles(ctx context.Context, pciAddress string, held bool) ([]gpu.Obstacle, error)
	// RemovalCommand is what a person types on the node to remove a partition that others
	// have made; empty if there is nothing to remove.
	RemovalCommand(p gpu.Partition) string
	// Release ends the use of a driver that is going to be replaced, for good, and waits for
	// calls in progress. Close is called afterwards.
	Release(ctx context.Context) error
}

// Basic is what a driver answers whose GPUs have no modes and no settings, and cannot be
// measured.
type Basic struct{}

// Modes implements Driver.
func (Basic) Modes(context.Context, string) (gpu.Modes, error) { return gpu.Modes{}, nil }

// SetMIG implements Driver.
func (Basic) SetMIG(_ context.Context, pciAddress string, _, _ bool) error {
	return lacks(pciAddress, "MIG mode")
}

// SetComputePartition implements Driver.
func (Basic) SetComputePartition(_ context.Context, pciAddress, _ string) error {
	return lacks(pciAddress, "compute partition mode")
}

// SetMemoryPartition implements Driver.
func (Basic) SetMemoryPartition(context.Context, string) error {
	return fmt.Errorf("the GPUs have no memory partition mode: %w", gpu.ErrNotSupported)
}

// Settings implements Driver.
func (Basic) Settings(context.Context, string) (gpu.Settings, error) { return gpu.Settings{}, nil }

// SetTimeSlice implements Driver. Such GPUs are shared as their driver does it.
func (Basic) SetTimeSlice(context.Context, string, gpu.TimeSlice) error { return nil }

// SetComputeMode implements Driver.
func (Basic) SetComputeMode(context.Context, string, string) error { return nil }

// SetMemoryLimit implements Driver.
func (Basic) SetMemoryLimit(_ context.Context, pciAddress, _ string, _ gpu.MemoryLimit) error {
	return lacks(pciAddress, "limit of memory by control group")
}

// MemoryLimit implements Driver.
func (Basic) MemoryLimit(_ context.Context, pciAddress, _ string) (gpu.MemoryLimit, error) {
	return gpu.MemoryLimit{}, lacks(pciAddress, "limit of memory by control group")
}

// Usage implements Driver.
func (Basic) Usage(_ context.Context, pciAddress string) (gpu.Usage, error) {
	return gpu.Usage{}, fmt.Errorf("measure GPU %s: %w", gpu.NameOf(pciAddress), gpu.ErrNotSupported)
}

// Obstacles implements Driver.
func (Basic) Obstacles(context.Context, string, bool) ([]gpu.Obstacle, error) { return nil, nil }

// RemovalCommand implements Driver.
func (Basic) RemovalCommand(gpu.Partition) string { return "" }

// Release implements Driver.
func (Basic) Release(context.Context) error { return nil }

func lacks(pciAddress, what string) error {
	return fmt.Errorf("GPU %s has no %s: %w", gpu.NameOf(pciAddress), what, gpu.ErrNotSupported)
}
