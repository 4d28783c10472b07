// Package description says of a simulated machine what each program on it needs to know, in a file at
// its root.
package description

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/tranche-dev/tranche/pkg/publish/models"
	"github.com/tranche-dev/tranche/test/simulator/disk"
)

// Machine is a simulated machine.
type Machine struct {
	// Inventory is the text of its inventory.
	Inventory string `json:"inventory"`
	// Seed goes into the numbers of its GPUs.
	Seed string `json:"seed"`
	// Library is the version or branch of NVIDIA's driver whose library answers; empty: that of
	// the inventory.
	Library string `json:"library,omitempty"`
	// Instant: nobody waits for the hardware.
	Instant bool `json:"instant,omitempty"`
}

// Path is the file of the machine at a root.
func Path(root string) string { return filepath.Join(root, "machine.json") }

// Write describes the machine at a root, atomically, unless it is described so already.
func (m Machine) Write(root string) error {
	data, err := json.Marshal(m)
	if err != nil {
		return err
	}
	if old, err := os.ReadFile(Path(root)); err == nil && string(old) == string(data) {
		return nil
	}
	return disk.ReplaceFile(Path(root), data)
}

// Read returns the machine at a root.
func Read(root string) (*Machine, *models.Inventory, error) {
	data, err := os.ReadFile(Path(root))
	if err != nil {
		return nil, nil, fmt.Errorf("no simulated machine in %s: %w", root, err)
	}
	m := &Machine{}
	if err := json.Unmarshal(data, m); err != nil {
		return nil, nil, fmt.Errorf("%s: %w", Path(root), err)
	}
	inv, err := models.ParseInventory([]byte(m.Inventory))
	if err != nil {
		return nil, nil, fmt.Errorf("%s: inventory: %w", Path(root), err)
	}
	return m, inv, nil
}
