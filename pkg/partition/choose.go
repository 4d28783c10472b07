package partition

import (
	"fmt"
	"slices"

	"github.com/tranche-dev/tranche/api/v1alpha1"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/profile"
)

// choose says what a wish comes to on the GPUs of the node, of which some were seen.
// What it came to before, where that is known, still holds: partitions keep their
// places, and a GPU that is gone changes nothing for the others.
func (n *Node) choose(to v1alpha1.ProfileSnapshot, seen []GPU) (followed, error) {
	before := n.before(to)
	gpus := n.GPUs()
	resolved, err := n.resolve(to, gpus, seen)
	if err != nil && before.Shapes == nil {
		return followed{}, err
	}
	wanted := followed{Wish: to, Shapes: map[string]profile.Shape{}, Vendors: vendorsOf(seen)}
	for i := range gpus {
		address := gpus[i].PCIAddress
		shape, known := before.Shapes[address]
		if !known || !canHave(&gpus[i], shape) {
			shape = resolved[address].Shape
		}
		wanted.Shapes[address] = shape
	}
	return wanted, nil
}

// before is what a wish came to the last time; it has no shapes if it is new.
func (n *Node) before(to v1alpha1.ProfileSnapshot) followed {
	in := n.intent()
	switch {
	case in.Applying != nil && in.Applying.Wish.Hash == to.Hash:
		return *in.Applying
	case in.Applied.Wish.Hash == to.Hash:
		return in.Applied
	case n.planned.Wish.Hash == to.Hash:
		return n.planned
	}
	return followed{}
}

// canHave tells whether a shape can be of the GPU, which may have taken the place of
// another one.
func canHave(g *gpu.GPU, shape profile.Shape) bool {
	if len(g.Modes) > 0 {
		return shape.Cut == profile.CutDynamic && !shape.Named
	}
	cut := g.WithMIG(gpu.MIGOn)
	isWhole := shape.Compute == "" || ofMode(gpu.Placement{Profile: shape.Compute}, "spx")
	return isWhole && shape.Memory == "" && !slices.ContainsFunc(shape.Layout, func(p gpu.Placement) bool {
		_, ok := cut.Placement(p.Name())
		return !ok
	})
}

func vendorsOf(gpus []GPU) []gpu.Vendor {
	var all []gpu.Vendor
	for i := range gpus {
		all = append(all, gpus[i].Vendor)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// allThere refuses to go on with what was begun while all GPUs of a vendor are gone:
// its driver was taken out for the memory mode, or does not answer yet.
func (n *Node) allThere(seen []GPU) error {
	applying := n.intent().Applying
	if applying == nil {
		return nil
	}
	var errs []error
	there := vendorsOf(seen)
	for _, v := range applying.Vendors {
		if !slices.Contains(there, v) {
			errs = append(errs, fmt.Errorf("the node had %s GPUs when its profile was to be changed, and has none now: is their driver loaded?", v.Title()))
		}
	}
	return join(errs...)
}

// resolve says what a wish comes to on GPUs. As many partitions as possible stay where
// they are, those that claims hold above all.
func (n *Node) resolve(to v1alpha1.ProfileSnapshot, gpus []gpu.GPU, seen []GPU) (map[string]profile.Desired, error) {
	live, held := map[string][]gpu.Partition{}, map[string][]gpu.Partition{}
	for i := range seen {
		c := &seen[i]
		live[c.PCIAddress] = c.Live
		if parts := slices.DeleteFunc(slices.Clone(c.Live), func(q gpu.Partition) bool { return !c.holds(q) }); len(parts) > 0 {
			held[c.PCIAddress] = parts
		}
	}
	resolved, err := n.Resolve(to, gpus, func(gpuID string) []gpu.Partition { return live[gpuID] })
	if err != nil || len(held) == 0 {
		return resolved, err
	}
	forHolders, err := n.Resolve(to, gpus, func(gpuID string) []gpu.Partition { return held[gpuID] })
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

// holds tells whether a claim holds a partition.
func (c *GPU) holds(q gpu.Partition) bool {
	return slices.ContainsFunc(c.Held, func(h Holder) bool { return q.Is(h.Placement) })
}

// kept is how many of the partitions have a place in the GPU's layout.
func kept(parts []gpu.Partition, g profile.Desired) int {
	n := 0
	for _, q := range parts {
		if slices.ContainsFunc(g.Shape.Layout, q.Is) {
			n++
		}
	}
	return n
}
