package partition

import (
	"context"
	"slices"

	"github.com/tranche-dev/tranche/api/v1alpha1"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/profile"
)

// shrinks tells whether the shape that is wanted does not offer devices that the GPU
// offers now.
func (c *GPU) shrinks() bool {
	return slices.ContainsFunc(c.Placements, func(p gpu.Placement) bool { return c.Now.Offers(p) && !c.To.Offers(p) })
}

// shrinking are the names of the GPUs that do not change, but offer less than before. A
// pod that is displaced from a GPU that does change must not be scheduled to a device
// that they are about to lose. Where no GPU changes, no pod is displaced, and there are
// none.
func (plan *Plan) shrinking(gpus []GPU) []string {
	if len(plan.GPUs) == 0 {
		return nil
	}
	var names []string
	for i := range gpus {
		c := &gpus[i]
		changes := slices.ContainsFunc(plan.GPUs, func(p GPUPlan) bool { return p.PCIAddress == c.PCIAddress })
		if !changes && c.shrinks() {
			names = append(names, c.Name())
		}
	}
	slices.Sort(names)
	return names
}

// Shapes are the shapes that a wish comes to on some of the node's GPUs, by PCI address,
// as Plan would choose them. It touches nothing. An error says why the wish does not fit
// the node.
func (n *Node) Shapes(ctx context.Context, to v1alpha1.ProfileSnapshot, of []string) (map[string]profile.Shape, error) {
	n.turn.Lock()
	defer n.turn.Unlock()
	gpus := slices.DeleteFunc(n.present(), func(c gpu.GPU) bool { return !slices.Contains(of, c.PCIAddress) })
	// A GPU that does not answer is planned as if it had no partitions.
	seen, _ := n.lookAll(ctx, gpus, n.Claims.Held(addresses(gpus)))
	wanted, err := n.choose(to, seen)
	if err != nil {
		return nil, err
	}
	return wanted.Shapes, nil
}
