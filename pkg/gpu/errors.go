package gpu

import (
	"errors"
	"fmt"
	"strings"

	"github.com/tranche-dev/tranche/pkg/lists"
)

// ErrInUse is what a vendor returns, wrapped, when a process still uses what
// should be destroyed or switched.
var ErrInUse = errors.New("in use")

// ProcessesError is an ErrInUse in which the vendor names the processes. Without it, what uses the
// GPU is not known, or the driver is wrong.
type ProcessesError struct{ Err error }

func (e *ProcessesError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *ProcessesError) Unwrap() error { return e.Err }

// ErrNotSupported is what a vendor returns, wrapped, when a GPU cannot be set as
// it was asked to be, and never will.
var ErrNotSupported = errors.New("not supported by the GPU")

// ErrLost is what a vendor returns, wrapped, when a GPU is no longer on its bus:
// nothing on it can be used or changed until it returns. A GPU that only takes long
// to answer, or hangs, is not lost.
var ErrLost = errors.New("lost")

// DriverError says that the driver of a GPU cannot be used now: its library is missing
// or does not match the kernel module, or the driver is being replaced. What is in the
// hardware stays as it is meanwhile.
type DriverError struct {
	PCIAddress string
	Vendor     Vendor
	Err        error
}

func (e *DriverError) Error() string {
	return fmt.Sprintf("the %s driver of GPU %s cannot be used: %v", e.Vendor.Title(), NameOf(e.PCIAddress), e.Err)
}

// Unwrap returns the cause.
func (e *DriverError) Unwrap() error { return e.Err }

// Error is a GPU that could not be read.
type Error struct {
	// PCIAddress is empty when the GPU did not tell it, now or earlier.
	PCIAddress string
	// ID is the vendor's own handle, for people: "NVML index 3".
	ID  string
	Err error
}

func (e *Error) Error() string {
	if e.PCIAddress == "" {
		return fmt.Sprintf("GPU with %s: %v", e.ID, e.Err)
	}
	return fmt.Sprintf("GPU %s (%s): %v", e.PCIAddress, e.ID, e.Err)
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// InventoryError is what a vendor returns beside the GPUs that it could read.
// A caller publishes those and marks the ones named here:
//
//	GPUs, err := hardware.Inventory(ctx)
//	var broken *gpu.InventoryError
//	if err != nil && !errors.As(err, &broken) { return err } // nothing is known
//	for _, GPU := range broken.GPUs { … }
type InventoryError struct{ GPUs []*Error }

func (e *InventoryError) Error() string {
	return strings.Join(lists.Map(e.GPUs, (*Error).Error), "; ")
}

// Unwrap returns the error of each GPU.
func (e *InventoryError) Unwrap() []error {
	return lists.Map(e.GPUs, func(g *Error) error { return g })
}
