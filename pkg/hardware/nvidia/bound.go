package nvidia

import (
	"fmt"
	"os"
	"sync"

	"github.com/tranche-dev/tranche/pkg/hardware"
)

// bound is the library file whose functions this process calls, from the first time that NVML is
// opened on. Functions that the program itself refers to are bound at their first call and stay bound:
// dlclose does not unload the library, and dlopen of a new file at the same path returns the old one
// (glibc; seen with NVIDIA's libraries of 535 and 550). With the module of another version, that
// library only answers NVML_ERROR_LIB_RM_VERSION_MISMATCH.
var bound boundLibrary

type boundLibrary struct {
	// mu protects file.
	mu   sync.Mutex
	file os.FileInfo
}

// bind fails with hardware.ErrRestart if this process is bound to another library than that at a path.
func (b *boundLibrary) bind(path string) error {
	file, err := os.Stat(path)
	if err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.file == nil {
		b.file = file
	}
	if !os.SameFile(b.file, file) {
		return fmt.Errorf("%s was replaced: %w", path, hardware.ErrRestart)
	}
	return nil
}
