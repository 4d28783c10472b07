package amd

import (
	"errors"
	"fmt"
	"io/fs"

	"golang.org/x/sys/unix"
)

// FileError is a call to a file that did not succeed. errors.Is finds the
// kernel's error number in it.
type FileError struct {
	// Subject is what was asked: "GPU 0000:c1:00.0" or "amdgpu".
	Subject string
	// Op is what was done: "read", "write CPX to".
	Op, Name string
	Err      error
}

func (e *FileError) Error() string {
	return fmt.Sprintf("%s: %s %s: %v", e.Subject, e.Op, e.Name, e.Err)
}

// Unwrap gives the kernel's error.
func (e *FileError) Unwrap() error { return e.Err }

// bare is an error without the path that the caller is going to name.
func bare(err error) error {
	var path *fs.PathError
	if errors.As(err, &path) {
		return path.Err
	}
	return err
}

// HealthError is a GPU that is not well.
type HealthError struct {
	PCIAddress string
	// Problem is what is wrong, Cure what to do.
	Problem, Cure string
	cause         error
}

func (e *HealthError) Error() string {
	return fmt.Sprintf("GPU %s %s: %s", e.PCIAddress, e.Problem, e.Cure)
}

// Unwrap gives the error by which it was seen, if it was one.
func (e *HealthError) Unwrap() error { return e.cause }

// What is wrong with GPUs, and what a person can do.
const (
	problemGone  = "is gone from the PCI bus, or amdgpu has let go of it"
	cureGone     = "look for its address in dmesg; if it fell off the bus, reboot the node"
	problemReset = "is being reset"
	cureReset    = "it is asked again; if it stays so, look for amdgpu in dmesg and reboot the node"
	problemKFD   = "has no node in KFD's topology, so that no program can compute on it"
	cureKFD      = "look for kfd in dmesg; load amdgpu anew or reboot the node"
)

func (c *gpuHandle) gone(cause error) error {
	return &HealthError{PCIAddress: c.pciAddress, Problem: problemGone, Cure: cureGone, cause: cause}
}

func (c *gpuHandle) withoutKFD() error {
	return &HealthError{PCIAddress: c.pciAddress, Problem: problemKFD, Cure: cureKFD}
}

// told turns what the kernel answers while a GPU is away into words. amdgpu
// answers EPERM to most files of a GPU that is in reset.
func (c *gpuHandle) told(err error) error {
	switch {
	case errors.Is(err, unix.EPERM):
		return &HealthError{PCIAddress: c.pciAddress, Problem: problemReset, Cure: cureReset, cause: err}
	case errors.Is(err, unix.ENODEV):
		return c.gone(err)
	}
	return err
}

func absent(err error) bool { return errors.Is(err, fs.ErrNotExist) }
