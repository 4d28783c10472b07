package hardware

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Machine is what the plugin runs on, real or simulated.
type Machine struct {
	// Vendors lists the vendors whose GPUs the machine may have.
	Vendors func() ([]Vendor, error)
	// BootID identifies this boot of the machine. It is empty if it cannot be read.
	BootID func() string
	// Reboot requests a reboot of the machine. It returns as soon as the machine has
	// accepted that.
	Reboot func(ctx context.Context) error
	// Now is the machine's clock.
	Now func() time.Time
}

// DriverRoot is the folder of the drivers of a simulated machine, with their programs. It is empty
// without one.
func DriverRoot(machineRoot string) string {
	if machineRoot == "" {
		return ""
	}
	return filepath.Join(machineRoot, "driver")
}

// BootID reads the boot id of the machine whose root folder is mounted at root. It is
// empty if it cannot be read.
func BootID(root string) string {
	data, err := os.ReadFile(filepath.Join(root, "proc/sys/kernel/random/boot_id"))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(data))
}
