package session

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/tranche-dev/tranche/pkg/gpu"
)

// CallError is an NVML call that failed. errors.Is finds its nvml.Return and, where that is
// the cause, gpu.ErrInUse or gpu.ErrLost.
type CallError struct {
	// Subject is what was asked: "GPU 0000:c1:00.0" or "NVML".
	Subject string
	// Call is the NVML function without its prefix ("GpuInstanceDestroy").
	Call   string
	Return nvml.Return
}

// codes are the names of NVML's answers in nvml.h. A Return of go-nvml prints so until a library is
// loaded, and then the library's words ("In use by another client").
var codes = func() map[nvml.Return]string {
	all := map[nvml.Return]string{}
	for code := range nvml.ERROR_UNKNOWN + 1 {
		all[code] = code.Error()
	}
	return all
}()

func (e *CallError) Error() string {
	text := fmt.Sprintf("%s: NVML call %s: %s", e.Subject, e.Call, cmp.Or(codes[e.Return], e.Return.Error()))
	if remedy := remedies[e.Return]; remedy != "" {
		text += " (" + remedy + ")"
	}
	return text
}

// Unwrap makes errors.Is work with NVML's codes, with gpu.ErrInUse and gpu.ErrLost.
func (e *CallError) Unwrap() []error {
	switch e.Return {
	case nvml.ERROR_IN_USE:
		return []error{e.Return, gpu.ErrInUse}
	case nvml.ERROR_GPU_IS_LOST:
		return []error{e.Return, gpu.ErrLost}
	}
	return []error{e.Return}
}

// remedies are what a person can do about an error of NVML.
var remedies = map[nvml.Return]string{
	nvml.ERROR_UNINITIALIZED:           "the NVML session was lost; it is opened again on the next call",
	nvml.ERROR_NO_PERMISSION:           "the plugin must run as root with CAP_SYS_ADMIN and see /dev/nvidia-caps: nvidia-cap1 is mig/config",
	nvml.ERROR_RESET_REQUIRED:          "the GPU must be reset: nvidia-smi --gpu-reset, or reboot the node",
	nvml.ERROR_IN_USE:                  "a process still uses it",
	nvml.ERROR_GPU_IS_LOST:             "the GPU fell off the bus: look for Xid 79 in dmesg and reboot the node",
	nvml.ERROR_DRIVER_NOT_LOADED:       "the nvidia kernel module is not loaded",
	nvml.ERROR_LIB_RM_VERSION_MISMATCH: "library and kernel module differ in version: reload the module or reboot the node",
	nvml.ERROR_INSUFFICIENT_RESOURCES:  "something else holds this part of the GPU: nvidia-smi mig -lgi",
}

// Unsupported reports whether an error means that this driver or GPU does not have what was
// requested.
func Unsupported(err error) bool {
	return errors.Is(err, nvml.ERROR_NOT_SUPPORTED) || errors.Is(err, nvml.ERROR_FUNCTION_NOT_FOUND)
}

// OldStructure reports whether an error means that the library is older than the version of a
// structure: the code for that, or INVALID_ARGUMENT, which nvml.h documents for it in some calls.
func OldStructure(err error) bool {
	return Unsupported(err) || errors.Is(err, nvml.ERROR_ARGUMENT_VERSION_MISMATCH) || errors.Is(err, nvml.ERROR_INVALID_ARGUMENT)
}

// StaleHandle reports whether an error, of a call whose only argument is a handle, means that what
// the handle stands for was destroyed. Of other calls the same codes say other things: that a
// number is beyond what this library knows, for instance.
func StaleHandle(err error) bool {
	return errors.Is(err, nvml.ERROR_NOT_FOUND) || errors.Is(err, nvml.ERROR_INVALID_ARGUMENT)
}

// Lost reports whether an error means that the GPU fell off the bus.
func Lost(err error) bool { return errors.Is(err, nvml.ERROR_GPU_IS_LOST) }
