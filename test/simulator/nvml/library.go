package main

// #cgo CFLAGS: -D_GNU_SOURCE
// #include <dlfcn.h>
// #include <stdlib.h>
//
// static const char *fileOfLibrary(void) {
//   Dl_info info;
//   return dladdr((void *)fileOfLibrary, &info) ? info.dli_fname : "";
// }
//
// // branchOfLibrary is replaced when a library is linked.
// __attribute__((weak)) int branchOfLibrary(void) { return 0; }
import "C"

import (
	"cmp"
	"log"
	"path/filepath"
	"strconv"
	"sync"
	"unsafe"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/tranche-dev/tranche/test/simulator/nvdriver"
)

// open is the machine between the first Init and the last Shutdown.
var open struct {
	// mu protects the fields.
	mu      sync.Mutex
	machine *nvdriver.NVML
	inits   int
}

// driver returns the machine, nil before Init and after the last Shutdown.
func driver() *nvdriver.NVML {
	open.mu.Lock()
	defer open.mu.Unlock()
	return open.machine
}

// onDriver makes a call on the library.
func onDriver(call func(*nvdriver.NVML) C.int) C.int {
	n := driver()
	if n == nil {
		return C.int(nvml.ERROR_UNINITIALIZED)
	}
	return call(n)
}

// machineVariable names the folder of the machine for programs that open this library from
// elsewhere, and for tests that open more machines than one.
const machineVariable = "TRANCHE_SIMULATED_MACHINE"

// root is the folder of the machine in whose driver root this library lies.
func root() (string, error) {
	name := C.CString(machineVariable)
	defer C.free(unsafe.Pointer(name))
	// Not os.Getenv, which knows what was set when the library was loaded.
	if folder := C.getenv(name); folder != nil {
		return C.GoString(folder), nil
	}
	file, err := filepath.EvalSymlinks(C.GoString(C.fileOfLibrary()))
	if err != nil {
		return "", err
	}
	return nvdriver.RootOfLibrary(file)
}

// branch is that of the driver, empty for an archive that no library was made of.
func branch() string {
	if number := C.branchOfLibrary(); number != 0 {
		return strconv.Itoa(int(number))
	}
	return ""
}

// machine opens the machine of this library.
func machine() (*nvdriver.NVML, error) {
	at, err := root()
	if err != nil {
		return nil, err
	}
	return nvdriver.Open(at, branch())
}

func initialize(flags uint32) nvml.Return {
	open.mu.Lock()
	defer open.mu.Unlock()
	n := open.machine
	if n == nil {
		var err error
		if n, err = machine(); err != nil {
			log.Printf("simulated libnvidia-ml.so.1: %v", err)
			return nvml.ERROR_DRIVER_NOT_LOADED
		}
	}
	ret := n.InitWithFlags(flags)
	if ret == nvml.SUCCESS {
		open.machine = n
		open.inits++
	}
	return ret
}

//export nvmlInit
func nvmlInit() C.int { return C.int(initialize(0)) }

//export nvmlInit_v2
func nvmlInit_v2() C.int { return C.int(initialize(0)) }

//export nvmlInitWithFlags
func nvmlInitWithFlags(flags C.uint) C.int { return C.int(initialize(uint32(flags))) }

//export nvmlShutdown
func nvmlShutdown() C.int {
	open.mu.Lock()
	defer open.mu.Unlock()
	if open.machine == nil {
		return C.int(nvml.ERROR_UNINITIALIZED)
	}
	ret := open.machine.Shutdown()
	if open.inits--; open.inits == 0 {
		open.machine = nil
		given.forgetAll()
	}
	return C.int(ret)
}

// unsupported is the answer of the functions that are not simulated.
//
//export unsupported
func unsupported() C.int {
	return onDriver(func(*nvdriver.NVML) C.int { return C.int(nvml.ERROR_NOT_SUPPORTED) })
}

// texts are those of errorTexts that callers keep.
var texts struct {
	// mu protects the map.
	mu  sync.Mutex
	all map[C.int]*C.char
}

//export nvmlErrorString
func nvmlErrorString(ret C.int) *C.char {
	texts.mu.Lock()
	defer texts.mu.Unlock()
	text, ok := texts.all[ret]
	if !ok {
		if texts.all == nil {
			texts.all = map[C.int]*C.char{}
		}
		text = C.CString(cmp.Or(errorTexts[nvml.Return(ret)], "Unknown Error"))
		texts.all[ret] = text
	}
	return text
}

// errorTexts is what the libraries of 535, 550 and 555 say of each answer; they know "Unknown Error"
// of all others.
var errorTexts = map[nvml.Return]string{
	nvml.SUCCESS:                         "Success",
	nvml.ERROR_UNINITIALIZED:             "Uninitialized",
	nvml.ERROR_INVALID_ARGUMENT:          "Invalid Argument",
	nvml.ERROR_NOT_SUPPORTED:             "Not Supported",
	nvml.ERROR_NO_PERMISSION:             "Insufficient Permissions",
	nvml.ERROR_ALREADY_INITIALIZED:       "Already Initialized",
	nvml.ERROR_NOT_FOUND:                 "Not Found",
	nvml.ERROR_INSUFFICIENT_SIZE:         "Insufficient Size",
	nvml.ERROR_INSUFFICIENT_POWER:        "Insufficient External Power",
	nvml.ERROR_DRIVER_NOT_LOADED:         "Driver Not Loaded",
	nvml.ERROR_TIMEOUT:                   "Timeout",
	nvml.ERROR_IRQ_ISSUE:                 "Interrupt Request Issue",
	nvml.ERROR_LIBRARY_NOT_FOUND:         "NVML Shared Library Not Found",
	nvml.ERROR_FUNCTION_NOT_FOUND:        "Function Not Found",
	nvml.ERROR_CORRUPTED_INFOROM:         "Corrupted infoROM",
	nvml.ERROR_GPU_IS_LOST:               "GPU is lost",
	nvml.ERROR_RESET_REQUIRED:            "GPU requires reset",
	nvml.ERROR_OPERATING_SYSTEM:          "GPU access blocked by the operating system",
	nvml.ERROR_LIB_RM_VERSION_MISMATCH:   "Driver/library version mismatch",
	nvml.ERROR_IN_USE:                    "In use by another client",
	nvml.ERROR_MEMORY:                    "Insufficient Memory",
	nvml.ERROR_NO_DATA:                   "No data",
	nvml.ERROR_VGPU_ECC_NOT_SUPPORTED:    "vGPU ECC not supported",
	nvml.ERROR_INSUFFICIENT_RESOURCES:    "Insufficient Resources",
	nvml.ERROR_FREQ_NOT_SUPPORTED:        "Invalid Frequency",
	nvml.ERROR_ARGUMENT_VERSION_MISMATCH: "Argument version mismatch",
	nvml.ERROR_DEPRECATED:                "Requested functionality has been deprecated",
	nvml.ERROR_NOT_READY:                 "System is not in ready state",
	nvml.ERROR_GPU_NOT_FOUND:             "No supported GPUs were found",
	nvml.ERROR_INVALID_STATE:             "Resource not in correct state to perform requested operation",
}

//export nvmlSystemGetDriverVersion
func nvmlSystemGetDriverVersion(version *C.char, length C.uint) C.int {
	return onDriver(func(n *nvdriver.NVML) C.int {
		text, ret := n.SystemGetDriverVersion()
		return answerText(version, length, text, ret)
	})
}

//export nvmlSystemGetNVMLVersion
func nvmlSystemGetNVMLVersion(version *C.char, length C.uint) C.int {
	n := driver()
	if n == nil { // it needs no Init
		var err error
		if n, err = machine(); err != nil {
			return C.int(nvml.ERROR_UNKNOWN)
		}
	}
	text, ret := n.SystemGetNVMLVersion()
	return answerText(version, length, text, ret)
}

//export nvmlSystemGetCudaDriverVersion
func nvmlSystemGetCudaDriverVersion(version unsafe.Pointer) C.int {
	return nvmlSystemGetCudaDriverVersion_v2(version)
}

//export nvmlSystemGetCudaDriverVersion_v2
func nvmlSystemGetCudaDriverVersion_v2(version unsafe.Pointer) C.int {
	return onDriver(func(n *nvdriver.NVML) C.int {
		number, ret := n.SystemGetCudaDriverVersion_v2()
		return answerUint(version, number, ret)
	})
}

//export nvmlSystemGetProcessName
func nvmlSystemGetProcessName(pid C.uint, name *C.char, length C.uint) C.int {
	return onDriver(func(n *nvdriver.NVML) C.int {
		text, ret := n.SystemGetProcessName(int(pid))
		return answerText(name, length, text, ret)
	})
}

//export nvmlDeviceGetCount
func nvmlDeviceGetCount(count unsafe.Pointer) C.int { return nvmlDeviceGetCount_v2(count) }

//export nvmlDeviceGetCount_v2
func nvmlDeviceGetCount_v2(count unsafe.Pointer) C.int {
	return onDriver(func(n *nvdriver.NVML) C.int {
		number, ret := n.DeviceGetCount()
		return answerUint(count, number, ret)
	})
}

//export nvmlDeviceGetHandleByIndex
func nvmlDeviceGetHandleByIndex(index C.uint, device unsafe.Pointer) C.int {
	return nvmlDeviceGetHandleByIndex_v2(index, device)
}

//export nvmlDeviceGetHandleByIndex_v2
func nvmlDeviceGetHandleByIndex_v2(index C.uint, device unsafe.Pointer) C.int {
	return onDriver(func(n *nvdriver.NVML) C.int {
		d, ret := n.DeviceGetHandleByIndex(int(index))
		return answerHandle(device, d, ret)
	})
}

//export nvmlDeviceGetHandleByUUID
func nvmlDeviceGetHandleByUUID(uuid *C.char, device unsafe.Pointer) C.int {
	return onDriver(func(n *nvdriver.NVML) C.int {
		d, ret := n.DeviceGetHandleByUUID(C.GoString(uuid))
		return answerHandle(device, d, ret)
	})
}

//export nvmlDeviceGetHandleByPciBusId
func nvmlDeviceGetHandleByPciBusId(id *C.char, device unsafe.Pointer) C.int {
	return nvmlDeviceGetHandleByPciBusId_v2(id, device)
}

//export nvmlDeviceGetHandleByPciBusId_v2
func nvmlDeviceGetHandleByPciBusId_v2(id *C.char, device unsafe.Pointer) C.int {
	return onDriver(func(n *nvdriver.NVML) C.int {
		d, ret := n.DeviceGetHandleByPciBusId(C.GoString(id))
		return answerHandle(device, d, ret)
	})
}
