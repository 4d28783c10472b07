package nvdriver

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/tranche-dev/tranche/test/simulator/description"
	"github.com/tranche-dev/tranche/test/simulator/nvfiles"
)

// Open returns the library of the machine that New has started at the root, as another process
// opens a driver that is installed: no file changes. library is Options.Library, empty for that of New.
func Open(root, library string) (*NVML, error) {
	m, inv, err := description.Read(root)
	if err != nil {
		return nil, err
	}
	o := Options{Root: root, Seed: m.Seed, Library: cmp.Or(library, m.Library)}
	if m.Instant {
		o.Sleep = func(time.Duration) {}
	}
	return opened(inv, o), nil
}

// Observe lets a test use handles of the library without a session, which would keep the GPUs in use.
func (n *NVML) Observe() { n.observed.Store(true) }

// RootOfLibrary returns the folder of the machine in whose driver root a library lies.
func RootOfLibrary(file string) (string, error) {
	for folder := filepath.Dir(file); folder != "/" && folder != "."; folder = filepath.Dir(folder) {
		if filepath.Base(folder) != filepath.Base(nvfiles.DriverRoot("/")) {
			continue
		}
		root := filepath.Dir(folder)
		if _, err := os.Stat(description.Path(root)); err == nil {
			return root, nil
		}
	}
	return "", fmt.Errorf("%s is not in the driver root of a simulated machine", file)
}

// instanceKey tells instances apart, also from a later one with the same id.
type instanceKey struct {
	kind   string
	serial uint64
}

// Key returns a value that is equal for two handles of the same thing.
func Key(handle any) any {
	switch h := handle.(type) {
	case *gpuInstance:
		return instanceKey{"gpu", h.serial}
	case *computeInstance:
		return instanceKey{"compute", h.serial}
	case *migDevice:
		return instanceKey{"device", h.compute.serial}
	}
	return handle // of which there is one
}
