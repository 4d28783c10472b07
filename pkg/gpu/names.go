package gpu

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

var pciAddress = regexp.MustCompile(`^([0-9a-f]{4,8}):([0-9a-f]{2}):([0-9a-f]{2})\.([0-7])$`)

// NormalizePCIAddress spells a PCI address the way the kernel does: lower case
// and a domain of four digits where four are enough. NVML writes eight digits
// in upper case.
func NormalizePCIAddress(address string) (string, error) {
	m := pciAddress.FindStringSubmatch(strings.ToLower(strings.TrimSpace(address)))
	if m == nil {
		return "", fmt.Errorf("%q is not a PCI address of the form 0000:c1:00.0", address)
	}
	domain, err := strconv.ParseUint(m[1], 16, 32)
	if err != nil {
		return "", fmt.Errorf("PCI address %q: domain: %w", address, err)
	}
	return fmt.Sprintf("%04x:%s:%s.%s", domain, m[2], m[3], m[4]), nil
}

// NameOf turns a normalized PCI address into the name of the GPU.
func NameOf(pciAddress string) string {
	return "gpu-" + gpuSlug.Replace(pciAddress)
}

var gpuSlug = strings.NewReplacer(":", "-", ".", "-")

var deviceName = regexp.MustCompile(`^gpu-([0-9a-f]{4,8})-([0-9a-f]{2})-([0-9a-f]{2})-([0-7])(-.*)?$`)

// OfDevice is the name of the GPU that a device belongs to, found by the name of
// the device alone. It is empty for names that are not ours.
func OfDevice(device string) string {
	m := deviceName.FindStringSubmatch(device)
	if m == nil {
		return ""
	}
	return strings.TrimSuffix(device, m[5])
}

// AddressOf is the PCI address of the GPU that a device belongs to, found by the name of the
// device alone. It is empty for names that are not ours.
func AddressOf(device string) string {
	m := deviceName.FindStringSubmatch(device)
	if m == nil {
		return ""
	}
	return fmt.Sprintf("%s:%s:%s.%s", m[1], m[2], m[3], m[4])
}

// IsMonitor reports whether a device is the Monitor of a GPU, by its name.
func IsMonitor(device string) bool {
	return OfDevice(device) != "" && strings.HasSuffix(device, "-"+string(TypeMonitor))
}

// partitionName leaves out the type where the profile is a mode: "…-cpx-3".
func partitionName(pciAddress string, t Type, profile string, position int) string {
	if t.FollowsMode() {
		return fmt.Sprintf("%s-%s-%d", NameOf(pciAddress), ProfileSlug(profile), position)
	}
	return fmt.Sprintf("%s-%s-%s-%d", NameOf(pciAddress), t, ProfileSlug(profile), position)
}

// spellVariant spells the variant of a MIG profile without "+". No result means another variant:
// 1g.24gb+me has media engines, and 1g.24gb-me has none.
var spellVariant = strings.NewReplacer("+", "-plus-", "-me", "-no-me")

// ProfileSlug spells a profile so that it can be part of a DNS label: "1g.24gb+me" becomes
// "1g-24gb-plus-me" and "1g.24gb-me" becomes "1g-24gb-no-me".
func ProfileSlug(profile string) string {
	return strings.ReplaceAll(spellVariant.Replace(profile), ".", "-")
}
