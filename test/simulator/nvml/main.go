// Command nvml is the simulated driver's libnvidia-ml.so.1: a C library with the functions and
// structures of nvml.h, which programs open as they open NVIDIA's. It serves the simulated machine
// in whose driver root it lies (see nvfiles).
//
// The types of go-nvml are those of nvml.h, field by field, so a pointer to one is a pointer to the
// other. Handles are addresses, as nvml.h has it. The package libraries makes one for
// each branch of the driver, with exactly that branch's functions.
package main

import "C"

import (
	"unsafe"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

func main() {}

// answer writes a value to where the caller wants it.
func answer[T any](out unsafe.Pointer, value T, ret nvml.Return) C.int {
	if out == nil {
		return C.int(nvml.ERROR_INVALID_ARGUMENT)
	}
	if ret == nvml.SUCCESS {
		*(*T)(out) = value
	}
	return C.int(ret)
}

// answerUint is answer for calls whose numbers go-nvml turns into int.
func answerUint(out unsafe.Pointer, value int, ret nvml.Return) C.int {
	return answer(out, uint32(value), ret)
}

// answerText writes a string with its final zero.
func answerText(out *C.char, length C.uint, text string, ret nvml.Return) C.int {
	switch {
	case out == nil:
		return C.int(nvml.ERROR_INVALID_ARGUMENT)
	case ret != nvml.SUCCESS:
		return C.int(ret)
	case len(text) >= int(length):
		return C.int(nvml.ERROR_INSUFFICIENT_SIZE)
	}
	to := unsafe.Slice((*byte)(unsafe.Pointer(out)), int(length))
	to[copy(to, text)] = 0
	return C.int(nvml.SUCCESS)
}

// answerList writes a list to out, an array of *count elements, and its length to count. Too small
// an array is INSUFFICIENT_SIZE with the length that is needed (nvml.h, on every such call).
func answerList[T any](out unsafe.Pointer, count *C.uint, list []T, ret nvml.Return) C.int {
	switch {
	case count == nil:
		return C.int(nvml.ERROR_INVALID_ARGUMENT)
	case ret != nvml.SUCCESS:
		return C.int(ret)
	}
	room := int(*count)
	*count = C.uint(len(list))
	if len(list) > room || out == nil && len(list) > 0 {
		return C.int(nvml.ERROR_INSUFFICIENT_SIZE)
	}
	if len(list) > 0 {
		copy(unsafe.Slice((*T)(out), room), list)
	}
	return C.int(nvml.SUCCESS)
}

// answerVersioned writes a structure that begins with its version, which the caller has set. other
// is the answer to another version.
func answerVersioned[T any](out unsafe.Pointer, version uint32, other nvml.Return, value T, ret nvml.Return) C.int {
	if out != nil && *(*uint32)(out) != nvml.STRUCT_VERSION(value, version) {
		return C.int(other)
	}
	return answer(out, value, ret)
}
