package nvfiles

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
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
		"class":            fmt.Sprintf("0x%06x", controller3D),
		"revision":         fmt.Sprintf("0x%02x", revision),
		"numa_node":        strconv.Itoa(g.NUMANode),
		"enable":           "1",
		"resource":         resources(g),
	} {
		if err := disk.WriteFile(filepath.Join(dir, name), content+"\n"); err != nil {
			return err
		}
	}
	if err := disk.WriteFile(filepath.Join(dir, "config"), configSpace(g)); err != nil {
		return err
	}
	return link(dir, filepath.Join(sys, "bus/pci/devices", g.PCI))
}

const (
	controller3D = 0x030200
	revision     = 0xa1
	gib          = 1 << 30
)

// bars are the GPU's regions of memory by their number, as of Hopper: registers, the GPU's memory, and
// what is used by drivers. The addresses are of this simulation.
func bars(g models.GPU) map[int][2]uint64 {
	memory := uint64(gib)
	for memory < g.Model.MemoryMiB<<20 {
		memory *= 2
	}
	bus, _ := strconv.ParseUint(strings.Split(g.PCI, ":")[1], 16, 64) // checked with the inventory
	base := 1<<45 + bus<<40
	return map[int][2]uint64{0: {base, 16 << 20}, 2: {base + 1<<39, memory}, 4: {base + gib, 32 << 20}}
}

// resources is the file of that name: start, end and flags of each region, and of those of virtual
// functions (pci-sysfs.c).
func resources(g models.GPU) string {
	const flags, lines = 0x14220c, 13
	regions := bars(g)
	var text []string
	for i := range lines {
		if r, ok := regions[i]; ok {
			text = append(text, fmt.Sprintf("0x%016x 0x%016x 0x%016x", r[0], r[0]+r[1]-1, flags))
		} else {
			text = append(text, fmt.Sprintf("0x%016x 0x%016x 0x%016x", 0, 0, 0))
		}
	}
	return strings.Join(text, "\n")
}

// configSpace has two capabilities, power management and PCI Express. One that is specific to the
// vendor would make the GPU a virtual one for those that look for NVIDIA vGPU.
func configSpace(g models.GPU) string {
	const (
		powerManagement, express = 0x60, 0x78 // where they begin
		mem64Prefetchable        = 0xc
	)
	space := make([]byte, 4096)
	le := binary.LittleEndian
	id := g.Model.DeviceID()
	le.PutUint16(space[0x00:], uint16(id))     //nolint:gosec // two numbers in one
	le.PutUint16(space[0x02:], uint16(id>>16)) //nolint:gosec // two numbers in one
	le.PutUint16(space[0x04:], 0x0406)         // command: memory, bus master, no INTx
	le.PutUint16(space[0x06:], 0x0010)         // status: has capabilities
	le.PutUint32(space[0x08:], controller3D<<8|revision)
	for i, r := range bars(g) {
		le.PutUint64(space[0x10+4*i:], r[0]|mem64Prefetchable)
	}
	le.PutUint16(space[0x2c:], uint16(id)) //nolint:gosec // two numbers in one
	space[0x34] = powerManagement
	copy(space[powerManagement:], []byte{0x01, express, 0x03, 0x00})
	copy(space[express:], []byte{0x10, 0x00, 0x02, 0x00})
	return string(space)
}

// driverDir is where the kernel lists the GPUs that the driver serves.
func driverDir(root string) string { return filepath.Join(root, "sys/bus/pci/drivers/nvidia") }

func driverLink(root, addr string) string {
	return filepath.Join(root, "sys", pciDevicePath(addr), "driver")
}

// bind gives the GPU to the driver.
func bind(root, addr string) error {
	device := filepath.Join(root, "sys", pciDevicePath(addr))
	if err := link(device, filepath.Join(driverDir(root), addr)); err != nil {
		return err
	}
	return link(driverDir(root), driverLink(root, addr))
}

// unbind takes all GPUs from the driver, and the driver away.
func unbind(root string) error {
	served, err := os.ReadDir(driverDir(root))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, x := range served {
		err = errors.Join(err, disk.RemoveFile(driverLink(root, x.Name())))
	}
	return errors.Join(err, os.RemoveAll(driverDir(root)))
}

// link makes a link to a file, by the way from the one to the other.
func link(to, path string) error {
	target, err := filepath.Rel(filepath.Dir(path), to)
	if err != nil {
		return err
	}
	return disk.Symlink(target, path)
}
