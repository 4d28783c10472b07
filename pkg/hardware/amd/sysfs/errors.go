package sysfs

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/tranche-dev/tranche/pkg/gpu"
)

// HealthError is a GPU that is not healthy.
type HealthError struct {
	PCIAddress string
	// Problem is what is wrong, Cure what to do.
	Problem, Cure string
	// Kind is Problem in a word.
	Kind  gpu.Cause
	cause error
}

func (e *HealthError) Error() string {
	return fmt.Sprintf("GPU %s %s: %s", e.PCIAddress, e.Problem, e.Cure)
}

// Cause implements gpu.CauseOf.
func (e *HealthError) Cause() gpu.Cause { return e.Kind }

// Unwrap returns the error by which it was seen, if it was one.
func (e *HealthError) Unwrap() error { return e.cause }

// What is wrong with GPUs, and what a person can do.
const (
	problemGone  = "is gone from the PCI bus, or amdgpu has let go of it"
	cureGone     = "look for its address in dmesg; if it fell off the bus, reboot the node"
	problemReset = "is being reset"
	cureReset    = "it is asked again; if it stays so, look for amdgpu in dmesg and reboot the node"
	problemKFD   = "has no node in KFD's topology, so that no program can compute on it"
	cureKFD      = "look for kfd in dmesg; reload amdgpu or reboot the node"
)

// Gone is a GPU that is not on the bus any more, or not driven by amdgpu.
func (c *GPU) Gone(cause error) error {
	return &HealthError{PCIAddress: c.PCIAddress, Problem: problemGone, Kind: gpu.CauseLost, Cure: cureGone, cause: cause}
}

// WithoutKFD is a GPU of which KFD has no node.
func (c *GPU) WithoutKFD() error {
	return &HealthError{PCIAddress: c.PCIAddress, Problem: problemKFD, Kind: gpu.CauseMissing, Cure: cureKFD}
}

// Explain turns an error of the kernel for a GPU that is in reset or gone into a
// *HealthError. amdgpu answers EPERM to most files of a GPU in reset.
func (c *GPU) Explain(err error) error {
	switch {
	case errors.Is(err, unix.EPERM):
		return &HealthError{PCIAddress: c.PCIAddress, Problem: problemReset, Kind: gpu.CauseReset, Cure: cureReset, cause: err}
	case errors.Is(err, unix.ENODEV):
		return c.Gone(err)
	}
	return err
}
