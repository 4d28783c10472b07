package nvdriver

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/tranche-dev/tranche/pkg/publish/models"
	"github.com/tranche-dev/tranche/test/simulator/disk"
	"github.com/tranche-dev/tranche/test/simulator/nvfiles"
)

// description is what another process needs to know to use a machine.
type description struct {
	Inventory string `json:"inventory"`
	Seed      string `json:"seed"`
	Library   string `json:"library,omitempty"`
	// Instant: nobody waits for the hardware.
	Instant bool `json:"instant,omitempty"`
}

func descriptionPath(root string) string { return filepath.Join(root, "machine.json") }

// describe writes the description of the machine.
func (n *NVML) describe(o Options) error {
	data, err := json.Marshal(description{Inventory: n.inventory.Text, Seed: o.Seed, Library: o.Library, Instant: o.Sleep != nil})
	if err != nil {
		return err
	}
	path := descriptionPath(n.root)
	if old, err := os.ReadFile(path); err == nil && string(old) == string(data) {
		return nil
	}
	return disk.ReplaceFile(path, data)
}

// Open returns the library of the machine that New has started at the root, as another process
// opens a driver that is installed: no file changes. library is Options.Library, empty for that of New.
func Open(root, library string) (*NVML, error) {
	data, err := os.ReadFile(descriptionPath(root))
	if err != nil {
		return nil, fmt.Errorf("no simulated machine in %s: %w", root, err)
	}
	var d description
	if err := json.Unmarshal(data, &d); err != nil {
		return nil, fmt.Errorf("%s: %w", descriptionPath(root), err)
	}
	inv, err := models.ParseInventory([]byte(d.Inventory))
	if err != nil {
		return nil, fmt.Errorf("%s: inventory: %w", descriptionPath(root), err)
	}
	o := Options{Root: root, Seed: d.Seed, Library: cmp.Or(library, d.Library)}
	if d.Instant {
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
		if _, err := os.Stat(descriptionPath(root)); err == nil {
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
