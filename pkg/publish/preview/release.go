package preview

import (
	"slices"
	"strings"

	"github.com/tranche-dev/tranche/api/v1alpha1"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/profile"
)

// Release is what must be released for a profile.
type Release struct {
	// Devices are the held devices whose claims must be released, sorted.
	Devices []string
	// Unknown are the GPUs whose product is not known, sorted. Any of their devices may have to
	// be released.
	Unknown []string
}

// Of returns what must be released on a node for a profile, if claims hold the devices in held.
// It returns an error if the profile does not fit the node's GPUs.
func Of(n *v1alpha1.GPUNode, to v1alpha1.ProfileSnapshot, held []string) (Release, error) {
	var out Release
	if n.Status.Node == nil {
		return out, nil
	}
	m := machineOf(n.Status.Node, held)
	out.Unknown = m.unknown
	if len(m.gpus) == 0 {
		return out, nil
	}
	desired, err := profile.Resolve(to, m.gpus, func(address string) profile.Existing {
		return profile.Existing{Partitions: m.live[address]}
	})
	if err != nil {
		if len(m.unknown) > 0 {
			return out, nil // The rules may select unknown GPUs.
		}
		return out, err
	}
	memory := m.memory(desired)
	for i := range m.gpus {
		g := &m.gpus[i]
		if want := desired[g.PCIAddress]; !want.Unchanged {
			out.Devices = append(out.Devices, m.release(g, want.Layout, memory)...)
		}
	}
	slices.Sort(out.Devices)
	return out, nil
}

// memory returns the memory mode that all AMD GPUs change to, or "" if it does not change.
func (m *machine) memory(desired map[string]profile.Desired) string {
	for i := range m.gpus {
		address := m.gpus[i].PCIAddress
		if want := desired[address].Layout.Memory; want != "" && m.modes[address].Memory != want {
			return want
		}
	}
	return ""
}

// release returns the held devices of a GPU that do not exist in a layout.
func (m *machine) release(g *gpu.GPU, to profile.Layout, memory string) (devices []string) {
	modes := m.modes[g.PCIAddress]
	mig := migMode(modes, to)
	for _, device := range m.held[g.PCIAddress] {
		p, ok := placement(g, device)
		stays := ok
		switch {
		case modes.Memory != "" && memory != "" || mig != "" && mig != modes.MIG:
			stays = false
		case to.Compute != "" && modes.Compute != "" && to.Compute != modes.Compute:
			stays = strings.EqualFold(p.Profile, to.Compute)
		case to.Partitioning == profile.PartitioningStatic:
			stays = slices.ContainsFunc(to.Static, func(q gpu.Placement) bool { return q.Name() == p.Name() })
		case mig == gpu.MIGOff:
			stays = p.Type != gpu.TypeMIG
		}
		if !stays {
			devices = append(devices, device)
		}
	}
	return devices
}

// migMode returns the MIG mode that a layout requires, or "" if the profile does not change it.
func migMode(now gpu.Modes, to profile.Layout) gpu.MIGMode {
	switch {
	case now.MIG == "":
		return ""
	case to.Partitioning == profile.PartitioningOff:
		return gpu.MIGOff
	case to.Partitioning == profile.PartitioningStatic:
		return gpu.MIGOn
	case now.MIGNeedsReset && (to.Named || to.NoWhole || to.Profiles != nil):
		return gpu.MIGOn
	}
	return ""
}
