package nvfiles

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/tranche-dev/tranche/pkg/publish/models"
	"github.com/tranche-dev/tranche/test/simulator/disk"
)

// pciDevicePath is where the GPU sits below sys/devices: behind a root port
// of its root complex.
func pciDevicePath(addr string) string {
	root := models.PCIeRoot(addr)
	return filepath.Join("devices", root, strings.TrimPrefix(root, "pci")+":01.1", addr)
}

// writePCI writes the part of sysfs that describes the GPU:
// sys/bus/pci/devices/<addr> as a link into sys/devices, so that the PCIe
// root can be read from its target.
func writePCI(root string, g models.GPU) error {
	sys := filepath.Join(root, "sys")
	dir := filepath.Join(sys, pciDevicePath(g.PCI))
	id := g.Model.DeviceID()
	for name, content := range map[string]string{
		"vendor":           fmt.Sprintf("0x%04x", id&0xffff),
		"device":           fmt.Sprintf("0x%04x", id>>16),
		"subsystem_vendor": fmt.Sprintf("0x%04x", id&0xffff),
		"subsystem_device": "0x0000",
		"class":            "0x030200", // 3D controller
		"numa_node":        strconv.Itoa(g.NUMANode),
		"enable":           "1",
	} {
		if err := disk.WriteFile(filepath.Join(dir, name), content+"\n"); err != nil {
			return err
		}
	}
	target, err := filepath.Rel(filepath.Join(sys, "bus/pci/devices"), dir)
	if err != nil {
		return err
	}
	return disk.Symlink(target, filepath.Join(sys, "bus/pci/devices", g.PCI))
}
