package partition

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/profile"
)

// choose resolves a profile on the GPUs of the node; seen are those that answered. If it
// was resolved before, those layouts still hold: partitions keep their positions, and a
// removed GPU changes nothing for the others.
func (n *Node) choose(to v1beta1.ProfileSnapshot, seen []profile.NodeGPU) (resolvedProfile, error) {
	before := n.before(to)
	gpus := n.GPUs()
	resolved, err := n.resolve(to, gpus, seen)
	if err != nil && before.Layouts == nil {
		return resolvedProfile{}, err
	}
	desired := resolvedProfile{Snapshot: to, Layouts: map[string]profile.Layout{}, Vendors: profile.Vendors(seen)}
	in := n.journal()
	// An unfinished change may have begun to change any GPU.
	first := in.Applying == nil && in.Applied.Snapshot.Hash != to.Hash
	for i := range gpus {
		address := gpus[i].PCIAddress
		layout, known := before.Layouts[address]
		if !known || !canHave(&gpus[i], layout) {
			layout = resolved[address].Layout
		}
		desired.Layouts[address] = layout
		if first && resolved[address].Unchanged {
			desired.unchanged = append(desired.unchanged, address)
		}
	}
	return desired, nil
}

// before returns the last result for a profile; it has no layouts if the profile is new.
func (n *Node) before(to v1beta1.ProfileSnapshot) resolvedProfile {
	in := n.journal()
	switch {
	case in.Applying != nil && in.Applying.Snapshot.Hash == to.Hash:
		return *in.Applying
	case in.Applied.Snapshot.Hash == to.Hash:
		return in.Applied
	case n.planned.Snapshot.Hash == to.Hash:
		return n.planned
	}
	return resolvedProfile{}
}

// canHave reports whether a GPU can have a layout: it may have replaced another GPU in its
// slot.
func canHave(g *gpu.GPU, layout profile.Layout) bool {
	if len(g.Modes) > 0 {
		return layout.Partitioning == profile.PartitioningDynamic && !layout.Named
	}
	inMIG := g.WithMIG(gpu.MIGOn)
	if layout.Partitioning == profile.PartitioningStatic && len(profile.MIGProfiles(g)) == 0 {
		return false
	}
	isWhole := layout.Compute == "" || profile.OfMode(gpu.Placement{Profile: layout.Compute}, "spx")
	return isWhole && layout.Memory == "" && !slices.ContainsFunc(layout.Static, func(p gpu.Placement) bool {
		_, ok := inMIG.Placement(p.Name())
		return !ok
	})
}

// allThere returns an error if a change has begun and all GPUs of a vendor are missing:
// its driver was unloaded for the memory mode, or does not answer yet.
func (n *Node) allThere(seen []profile.NodeGPU) error {
	applying := n.journal().Applying
	if applying == nil {
		return nil
	}
	var errs []error
	there := profile.Vendors(seen)
	for _, v := range applying.Vendors {
		if !slices.Contains(there, v) {
			errs = append(errs, fmt.Errorf("the node had %s GPUs when its profile was to be changed, and has none now: is their driver loaded?", v.Title()))
		}
	}
	return join(errs...)
}

// resolve returns the desired state of GPUs by a profile. As many partitions as possible
// keep their positions, first of all those that claims hold.
func (n *Node) resolve(to v1beta1.ProfileSnapshot, gpus []gpu.GPU, seen []profile.NodeGPU) (map[string]profile.Desired, error) {
	live, held := map[string][]gpu.Partition{}, map[string][]gpu.Partition{}
	for i := range seen {
		g := &seen[i]
		live[g.PCIAddress] = g.Live
		if parts := slices.DeleteFunc(slices.Clone(g.Live), func(q gpu.Partition) bool { return !g.Holds(q) }); len(parts) > 0 {
			held[g.PCIAddress] = parts
		}
	}
	layouts := maps.Clone(n.journal().Layouts)
	for i := range gpus {
		if address := gpus[i].PCIAddress; !canHave(&gpus[i], layouts[address]) {
			delete(layouts, address)
		}
	}
	existing := func(partitions map[string][]gpu.Partition) func(string) profile.Existing {
		return func(gpuID string) profile.Existing {
			return profile.Existing{Partitions: partitions[gpuID], Layout: layouts[gpuID]}
		}
	}
	resolved, err := n.Resolve(to, gpus, existing(live))
	if err != nil || len(held) == 0 {
		return resolved, err
	}
	forHolders, err := n.Resolve(to, gpus, existing(held))
	if err != nil {
		return nil, err
	}
	for gpuID, parts := range held {
		if kept(parts, forHolders[gpuID]) > kept(parts, resolved[gpuID]) {
			resolved[gpuID] = forHolders[gpuID]
		}
	}
	return resolved, nil
}

// kept counts the partitions that the GPU's layout keeps.
func kept(parts []gpu.Partition, g profile.Desired) int {
	n := 0
	for _, q := range parts {
		if slices.ContainsFunc(g.Layout.Static, q.Is) {
			n++
		}
	}
	return n
}

// Layouts returns the layouts of some GPUs by a profile, by PCI address, as Plan would choose
// them. It changes nothing. An error says why the profile does not fit the node.
func (n *Node) Layouts(ctx context.Context, to v1beta1.ProfileSnapshot, of []string) (map[string]profile.Layout, error) {
	n.working.Lock()
	defer n.working.Unlock()
	gpus := slices.DeleteFunc(n.present(), func(g gpu.GPU) bool { return !slices.Contains(of, g.PCIAddress) })
	// A GPU that does not answer is planned as if it had no partitions.
	seen, _ := n.lookAll(ctx, gpus, n.Claims.Held(addresses(gpus)))
	desired, err := n.choose(to, seen)
	if err != nil {
		return nil, err
	}
	return desired.Layouts, nil
}
