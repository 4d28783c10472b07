// Package cuda is as much of CUDA's driver library as it takes to be a client of a
// GPU: it opens libcuda at run time, so that a program with it starts where there is
// none. Only test/hardware uses it.
//
// Signatures and numbers are those of cuda.h (CUDA Driver API, "Initialization",
// "Device Management", "Primary Context Management", "Memory Management", "Module
// Management", "Execution Control").
package cuda

/*
#cgo LDFLAGS: -ldl
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

typedef struct { char bytes[16]; } uuid_t;

static struct {
	int (*init)(unsigned int);
	int (*count)(int *);
	int (*get)(int *, int);
	int (*uuid)(uuid_t *, int);
	int (*attribute)(int *, int, int);
	int (*retain)(void **, int);
	int (*set)(void *);
	int (*alloc)(unsigned long long *, size_t);
	int (*to)(unsigned long long, const void *, size_t);
	int (*from)(void *, unsigned long long, size_t);
	int (*load)(void **, const void *);
	int (*function)(void **, void *, const char *);
	int (*launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);
	int (*wait)(void);
	int (*name)(int, const char **);
} cuda;

static const char *bind_all(const char *path) {
	void *library = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
	if (!library) return dlerror();
	struct { const char *name; void **at; } names[] = {
		{"cuInit", (void **)&cuda.init}, {"cuDeviceGetCount", (void **)&cuda.count},
		{"cuDeviceGet", (void **)&cuda.get}, {"cuDeviceGetUuid", (void **)&cuda.uuid},
		{"cuDeviceGetAttribute", (void **)&cuda.attribute},
		{"cuDevicePrimaryCtxRetain", (void **)&cuda.retain}, {"cuCtxSetCurrent", (void **)&cuda.set},
		{"cuMemAlloc_v2", (void **)&cuda.alloc}, {"cuGetErrorName", (void **)&cuda.name},
		{"cuMemcpyHtoD_v2", (void **)&cuda.to}, {"cuMemcpyDtoH_v2", (void **)&cuda.from},
		{"cuModuleLoadData", (void **)&cuda.load}, {"cuModuleGetFunction", (void **)&cuda.function},
		{"cuLaunchKernel", (void **)&cuda.launch}, {"cuCtxSynchronize", (void **)&cuda.wait},
	};
	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		if (!(*names[i].at = dlsym(library, names[i].name))) return dlerror();
	return NULL;
}

static int init(void) { return cuda.init(0); }
static int count(int *n) { return cuda.count(n); }
static int get(int *device) { return cuda.get(device, 0); }
static int uuid(uuid_t *u, int device) { return cuda.uuid(u, device); }
static int attribute(int *n, int which, int device) { return cuda.attribute(n, which, device); }
static int enter(int device) {
	void *context;
	int failed = cuda.retain(&context, device);
	return failed ? failed : cuda.set(context);
}
static int allocate(unsigned long long *at, size_t bytes) { return cuda.alloc(at, bytes); }
static int load(const char *text, void **function) {
	void *module;
	int failed = cuda.load(&module, text);
	return failed ? failed : cuda.function(function, module, "increment");
}
static int run(void *function, unsigned long long at, void *numbers, unsigned blocks, unsigned threads) {
	void *parameters[] = {&at};
	size_t bytes = (size_t)blocks * threads * 4;
	int failed = cuda.to(at, numbers, bytes);
	if (!failed) failed = cuda.launch(function, blocks, 1, 1, threads, 1, 1, 0, NULL, parameters, NULL);
	if (!failed) failed = cuda.wait();
	return failed ? failed : cuda.from(numbers, at, bytes);
}
static const char *name(int error) {
	const char *text = NULL;
	cuda.name(error, &text);
	return text;
}
*/
import "C"

import (
	_ "embed" // the kernel
	"errors"
	"fmt"
	"runtime"
	"unsafe"
)

// Numbers of cuda.h.
const (
	errorOutOfMemory        = 2  // CUDA_ERROR_OUT_OF_MEMORY
	attributeMultiprocessor = 16 // CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT
)

// ErrOutOfMemory says that the driver refuses more memory.
var ErrOutOfMemory = errors.New("out of memory")

// Client is a context on the first GPU that CUDA sees. What it has allocated, it
// has until the process ends.
type Client struct {
	// GPUs is how many CUDA sees, UUID that of the first ("GPU-…").
	GPUs int
	UUID string
	// Multiprocessors is how many this process can fill.
	Multiprocessors int
}

// Open makes this process a client. It binds the goroutine to its thread, to which
// CUDA's context belongs.
func Open(library string) (*Client, error) {
	runtime.LockOSThread()
	path := C.CString(library)
	defer C.free(unsafe.Pointer(path))
	if failure := C.bind_all(path); failure != nil {
		return nil, fmt.Errorf("open CUDA's library %s: %s", library, C.GoString(failure))
	}
	if err := check("cuInit", C.init()); err != nil {
		return nil, err
	}
	var gpus, device, processors C.int
	if err := check("cuDeviceGetCount", C.count(&gpus)); err != nil {
		return nil, err
	}
	if err := check("cuDeviceGet", C.get(&device)); err != nil {
		return nil, err
	}
	var id C.uuid_t
	if err := check("cuDeviceGetUuid", C.uuid(&id, device)); err != nil {
		return nil, err
	}
	if err := check("cuCtxSetCurrent", C.enter(device)); err != nil {
		return nil, err
	}
	if err := check("cuDeviceGetAttribute", C.attribute(&processors, attributeMultiprocessor, device)); err != nil {
		return nil, err
	}
	b := *(*[16]byte)(unsafe.Pointer(&id))
	return &Client{
		GPUs: int(gpus), UUID: fmt.Sprintf("GPU-%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:]),
		Multiprocessors: int(processors),
	}, nil
}

// Allocate takes memory of the GPU, in bytes. It fails with ErrOutOfMemory where the
// driver has, or gives, no more.
func (*Client) Allocate(bytes int64) error {
	_, err := allocate(bytes)
	return err
}

func allocate(bytes int64) (at C.ulonglong, err error) {
	err = check("cuMemAlloc", C.allocate(&at, C.size_t(bytes)))
	return at, err
}

//go:embed increment.ptx
var kernel string

// Compute has the GPU add one to each of many numbers, and checks what comes back.
func (*Client) Compute() error {
	const blocks, threads = 64, 256
	at, err := allocate(blocks * threads * 4)
	if err != nil {
		return err
	}
	text := C.CString(kernel)
	defer C.free(unsafe.Pointer(text))
	var function unsafe.Pointer
	if err := check("load a kernel", C.load(text, &function)); err != nil { //nolint:gocritic // cgo
		return err
	}
	numbers := make([]uint32, blocks*threads)
	for i := range numbers {
		numbers[i] = uint32(i)
	}
	if err := check("run a kernel", C.run(function, at, unsafe.Pointer(&numbers[0]), blocks, threads)); err != nil {
		return err
	}
	for i, n := range numbers {
		if n != uint32(i)+1 {
			return fmt.Errorf("the GPU says that %d and 1 are %d", i, n)
		}
	}
	return nil
}

func check(call string, result C.int) error {
	switch result {
	case 0:
		return nil
	case errorOutOfMemory:
		return fmt.Errorf("%s: %w", call, ErrOutOfMemory)
	}
	return fmt.Errorf("%s: CUDA answers %d (%s)", call, int(result), C.GoString(C.name(result)))
}
