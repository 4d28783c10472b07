package main

// #include <stdlib.h>
import "C"

import (
	"sync"
	"unsafe"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/tranche-dev/tranche/test/simulator/nvdriver"
)

// handles gives out what nvml.h calls handles: addresses, which callers keep and compare. What is
// the same thing has the same handle.
type handles struct {
	// mu protects the maps.
	mu     sync.Mutex
	things map[unsafe.Pointer]any
	known  map[any]unsafe.Pointer
}

var given = handles{things: map[unsafe.Pointer]any{}, known: map[any]unsafe.Pointer{}}

// of returns the handle of a thing, a pointer to a structure of nvdriver.
func (h *handles) of(thing any) unsafe.Pointer {
	key := nvdriver.Key(thing)
	h.mu.Lock()
	defer h.mu.Unlock()
	if handle, ok := h.known[key]; ok {
		return handle
	}
	handle := C.malloc(1)
	h.things[handle], h.known[key] = thing, handle
	return handle
}

// forget frees the handle of something that no other handle can be equal to.
func (h *handles) forget(handle unsafe.Pointer) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if thing, ok := h.things[handle]; ok {
		delete(h.known, thing)
		delete(h.things, handle)
		C.free(handle)
	}
}

// on makes a call on what a handle stands for. Anything else that a caller passes is INVALID_ARGUMENT.
func on[T any](handle unsafe.Pointer, call func(T) C.int) C.int {
	given.mu.Lock()
	found := given.things[handle]
	given.mu.Unlock()
	thing, ok := found.(T)
	switch {
	case ok:
		return call(thing)
	case driver() == nil:
		return C.int(nvml.ERROR_UNINITIALIZED)
	}
	return C.int(nvml.ERROR_INVALID_ARGUMENT)
}

// onDevice is on for a GPU or a MIG device.
func onDevice(handle unsafe.Pointer, call func(nvml.Device) C.int) C.int { return on(handle, call) }

// ask makes a call on what a handle stands for, and writes what it answers to out.
func ask[T, V any](handle, out unsafe.Pointer, call func(T) (V, nvml.Return)) C.int {
	return on(handle, func(thing T) C.int {
		value, ret := call(thing)
		return answer(out, value, ret)
	})
}

// askNumber is ask for calls whose numbers go-nvml turns into int.
func askNumber[T any](handle, out unsafe.Pointer, call func(T) (int, nvml.Return)) C.int {
	return on(handle, func(thing T) C.int {
		number, ret := call(thing)
		return answerUint(out, number, ret)
	})
}

// askText is ask for text.
func askText(device unsafe.Pointer, out *C.char, length C.uint, call func(nvml.Device) (string, nvml.Return)) C.int {
	return onDevice(device, func(d nvml.Device) C.int {
		text, ret := call(d)
		return answerText(out, length, text, ret)
	})
}

// askList is ask for a list.
func askList[V any](device, out unsafe.Pointer, count *C.uint, call func(nvml.Device) ([]V, nvml.Return)) C.int {
	return onDevice(device, func(d nvml.Device) C.int {
		all, ret := call(d)
		return answerList(out, count, all, ret)
	})
}

// answerHandle writes the handle of a thing.
func answerHandle(out unsafe.Pointer, thing any, ret nvml.Return) C.int {
	if out == nil {
		return C.int(nvml.ERROR_INVALID_ARGUMENT)
	}
	if ret != nvml.SUCCESS {
		return C.int(ret)
	}
	return answer(out, given.of(thing), ret)
}

// answerHandles writes the handles of things.
func answerHandles[T any](out unsafe.Pointer, count *C.uint, things []T, ret nvml.Return) C.int {
	all := make([]unsafe.Pointer, len(things))
	for i, thing := range things {
		all[i] = given.of(thing)
	}
	return answerList(out, count, all, ret)
}

// forgetAll frees all handles: none is valid after the last Shutdown.
func (h *handles) forgetAll() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for handle := range h.things {
		C.free(handle)
	}
	clear(h.things)
	clear(h.known)
}
