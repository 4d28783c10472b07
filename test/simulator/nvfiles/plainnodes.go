package nvfiles

import (
	"os"
	"sync"
	_ "unsafe" // for go:linkname

	_ "github.com/NVIDIA/nvidia-container-toolkit/pkg/nvcdi" // links what assertCharDevice names
)

// assertCharDevice is the function by which nvcdi checks that a file is a device node. It is
// a variable for nvcdi's own tests. No option of nvcdi replaces it.
//
//go:linkname assertCharDevice github.com/NVIDIA/nvidia-container-toolkit/internal/devices.assertCharDeviceStub
var assertCharDevice func(path string) error

// takePlainNodes makes nvcdi accept any file as a device node: without root, the simulated
// nodes are empty files.
var takePlainNodes = sync.OnceFunc(func() {
	assertCharDevice = func(path string) error {
		_, err := os.Stat(path)
		return err
	}
})
