package gpu

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// DriverName is the name of the DRA driver. It is the domain of all unqualified
// attributes and capacities and the driver in every allocation result.
const DriverName = "gpu.tranche.dev"

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

// PoolName is the name of a node's pool, which has the devices of all its GPUs.
// Autoscalers expect one pool per node: cluster-autoscaler takes a node's
// utilization from its fullest pool, and Karpenter considers a driver ready when it
// has published one complete pool.
func PoolName(node string) string { return node }

// NodeOfPool is the node that a pool belongs to. It also understands the pools of
// version 0.1, which had one per GPU: "<node>/<GPU>". Claims that were allocated
// then still name them. Names of nodes have no slash.
func NodeOfPool(pool string) string {
	node, _, _ := strings.Cut(pool, "/")
	return node
}

var deviceName = regexp.MustCompile(`^gpu-[0-9a-f]{4,8}-[0-9a-f]{2}-[0-9a-f]{2}-[0-7](-.*)?$`)

// OfDevice is the name of the GPU that a device belongs to, found by the name of
// the device alone. It is empty for names that are not ours.
func OfDevice(device string) string {
	m := deviceName.FindStringSubmatch(device)
	if m == nil {
		return ""
	}
	return strings.TrimSuffix(device, m[1])
}

// partitionName leaves out the type where the profile is a mode: "…-cpx-3".
func partitionName(pciAddress string, t Type, profile string, position int) string {
	if t.FollowsMode() {
		return fmt.Sprintf("%s-%s-%d", NameOf(pciAddress), ProfileSlug(profile), position)
	}
	return fmt.Sprintf("%s-%s-%s-%d", NameOf(pciAddress), t, ProfileSlug(profile), position)
}

var profileSlug = strings.NewReplacer(
	"+me.all", "-meall",
	"+", "-",
	"-me", "-nome", // 1g.24gb-me: without media engines, unlike 1g.24gb+me
	".", "-",
)

// ProfileSlug spells a profile so that it can be part of a DNS label:
// "1g.10gb+me" becomes "1g-10gb-me" and "1g.24gb-me" becomes "1g-24gb-nome".
func ProfileSlug(profile string) string { return profileSlug.Replace(profile) }
