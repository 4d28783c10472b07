// Package plainnodes lets nvcdi work on simulated machines of users who are not root. Import it for
// that effect.
package plainnodes

import (
	"os"
	_ "unsafe" // for go:linkname

	_ "github.com/NVIDIA/nvidia-container-toolkit/pkg/nvcdi" // links what assertCharDevice names

	"github.com/tranche-dev/tranche/test/simulator/nvfiles"
)

// assertCharDevice is the function by which nvcdi checks that a file is a device node. It is
// a variable for nvcdi's own tests. No option of nvcdi replaces it.
//
//go:linkname assertCharDevice github.com/NVIDIA/nvidia-container-toolkit/internal/devices.assertCharDeviceStub
var assertCharDevice func(path string) error

// Without root, the simulated nodes are empty files, so nvcdi must accept any file.
func init() {
	nvfiles.TakePlainNodes = func() {
		assertCharDevice = func(path string) error {
			_, err := os.Stat(path)
			return err
		}
	}
}
