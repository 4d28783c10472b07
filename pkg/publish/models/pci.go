package models

import (
	"fmt"
	"regexp"
	"strconv"
)

// pciAddress is domain, bus, device and function as sysfs spells them.
var pciAddress = regexp.MustCompile(`^[0-9a-f]{4}:[0-9a-f]{2}:[01][0-9a-f]\.[0-7]$`)

// IsPCIAddress reports whether a text is an address as sysfs spells it:
// 0000:1b:00.0.
func IsPCIAddress(s string) bool { return pciAddress.MatchString(s) }

// unassignedNUMA marks a GPU whose NUMA node the inventory leaves to us.
const unassignedNUMA = -2

// assignAddresses gives every GPU without an address one of an evenly spaced
// row of buses, spreads GPUs without a NUMA node over two, and refuses
// addresses used twice.
func assignAddresses(gpus []parsedGPU) error {
	used := map[string]bool{}
	for i := range gpus {
		if gpus[i].pci == "" {
			continue
		}
		if used[gpus[i].pci] {
			return fmt.Errorf("gpus: address %s is used twice", gpus[i].pci)
		}
		used[gpus[i].pci] = true
	}
	// 0x11 + 31 × 7 is the last of 32: all fit on one domain, with those that have an address already.
	bus, step := 0x11, 7
	if len(gpus) <= 16 {
		step = 13
	}
	for i := range gpus {
		if gpus[i].numa == unassignedNUMA {
			gpus[i].numa = 2 * i / len(gpus)
		}
		for gpus[i].pci == "" {
			if addr := fmt.Sprintf("0000:%02x:00.0", bus); !used[addr] {
				gpus[i].pci, used[addr] = addr, true
			}
			bus += step
		}
	}
	return nil
}

// ParsePCI splits an address that IsPCIAddress holds for one.
func ParsePCI(addr string) (domain, bus, device uint32) {
	part := func(s string) uint32 {
		n, _ := strconv.ParseUint(s, 16, 32)
		return uint32(n)
	}
	return part(addr[0:4]), part(addr[5:7]), part(addr[8:10])
}

// PCIeRoot is the root complex that a GPU hangs on. GPUs whose buses share
// the upper digit share a root, as on HGX boards.
func PCIeRoot(addr string) string {
	domain, bus, _ := ParsePCI(addr)
	return fmt.Sprintf("pci%04x:%02x", domain, bus&0xf0)
}
