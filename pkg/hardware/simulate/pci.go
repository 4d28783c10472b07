package simulate

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// pciAddress is domain, bus, device and function as sysfs spells them.
var pciAddress = regexp.MustCompile(`^[0-9a-f]{4}:[0-9a-f]{2}:[01][0-9a-f]\.[0-7]$`)

// unassignedNUMA marks a card whose NUMA node the inventory leaves to us.
const unassignedNUMA = -2

// assignAddresses gives every card without an address one of an evenly spaced
// row of buses, spreads cards without a NUMA node over two, and refuses
// addresses used twice.
func assignAddresses(gpus []GPU) error {
	used := map[string]bool{}
	for i := range gpus {
		if gpus[i].PCI == "" {
			continue
		}
		if used[gpus[i].PCI] {
			return fmt.Errorf("gpus: address %s is used twice", gpus[i].PCI)
		}
		used[gpus[i].PCI] = true
	}
	// 0x11 + 31 × 7 is the last of 32: all fit on one domain.
	bus, step := 0x11, 7
	if len(gpus) <= 16 {
		step = 13
	}
	for i := range gpus {
		if gpus[i].NUMANode == unassignedNUMA {
			gpus[i].NUMANode = 2 * i / len(gpus)
		}
		for gpus[i].PCI == "" {
			if addr := fmt.Sprintf("0000:%02x:00.0", bus); !used[addr] {
				gpus[i].PCI, used[addr] = addr, true
			}
			if bus += step; bus > 0xff {
				bus, step = 0x01, 1
			}
		}
	}
	return nil
}

// parsePCI splits an address that pciAddress matched.
func parsePCI(addr string) (domain, bus, device uint32) {
	part := func(s string) uint32 {
		n, _ := strconv.ParseUint(s, 16, 32)
		return uint32(n)
	}
	return part(addr[0:4]), part(addr[5:7]), part(addr[8:10])
}

// nvmlBusID is the address as NVML prints it: eight digits of domain, capitals.
func nvmlBusID(addr string) string { return "0000" + strings.ToUpper(addr) }

// sysfsBusID turns any spelling that NVML accepts (four or eight digits of
// domain, either case) into sysfs's.
func sysfsBusID(id string) string {
	id = strings.ToLower(id)
	if len(id) == len("00000000:1b:00.0") && strings.HasPrefix(id, "0000") {
		id = id[4:]
	}
	return id
}

// pciDevicePath is where the card sits below sys/devices: behind a root port
// of its root complex. Cards whose buses share the upper digit share a root,
// as on HGX boards.
func pciDevicePath(addr string) string {
	domain, bus, _ := parsePCI(addr)
	root := fmt.Sprintf("%04x:%02x", domain, bus&0xf0)
	return filepath.Join("devices", "pci"+root, root+":01.1", addr)
}

// layoutPCI writes the part of sysfs that describes the card:
// sys/bus/pci/devices/<addr> as a link into sys/devices, so that the PCIe
// root can be read from its target.
func layoutPCI(root string, g GPU) error {
	sys := filepath.Join(root, "sys")
	dir := filepath.Join(sys, pciDevicePath(g.PCI))
	id := g.Model.pciDeviceID()
	for name, content := range map[string]string{
		"vendor":           fmt.Sprintf("0x%04x", id&0xffff),
		"device":           fmt.Sprintf("0x%04x", id>>16),
		"subsystem_vendor": fmt.Sprintf("0x%04x", id&0xffff),
		"subsystem_device": "0x0000",
		"class":            "0x030200", // 3D controller
		"numa_node":        strconv.Itoa(g.NUMANode),
		"enable":           "1",
	} {
		if err := writeFile(filepath.Join(dir, name), content+"\n"); err != nil {
			return err
		}
	}
	target, err := filepath.Rel(filepath.Join(sys, "bus/pci/devices"), dir)
	if err != nil {
		return err
	}
	return symlink(target, filepath.Join(sys, "bus/pci/devices", g.PCI))
}
