package partition

import (
	"context"
	"slices"

	"github.com/tranche-dev/tranche/api/v1alpha1"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/profile"
)

// shrinks reports whether the desired layout no longer offers some of the GPU's devices.
func (g *GPU) shrinks() bool {
	return slices.ContainsFunc(g.Placements, func(p gpu.Placement) bool { return g.Now.Offers(p) && !g.To.Offers(p) })
}

// shrinking returns the names of the GPUs whose hardware does not change, but which offer
// less than before. Displaced pods must not be scheduled to devices that these GPUs are
// about to withdraw. If no GPU changes, no pod is displaced, and there are none.
func (plan *Plan) shrinking(gpus []GPU) []string {
	if len(plan.GPUs) == 0 {
		return nil
	}
	var names []string
	for i := range gpus {
		g := &gpus[i]
		changes := slices.ContainsFunc(plan.GPUs, func(p GPUPlan) bool { return p.PCIAddress == g.PCIAddress })
		if !changes && g.shrinks() {
			names = append(names, g.Name())
		}
	}
	slices.Sort(names)
	return names
}

// Layouts returns the layouts of some GPUs by a profile, by PCI address, as Plan would choose
// them. It changes nothing. An error says why the profile does not fit the node.
func (n *Node) Layouts(ctx context.Context, to v1alpha1.ProfileSnapshot, of []string) (map[string]profile.Layout, error) {
	n.turn.Lock()
	defer n.turn.Unlock()
	gpus := slices.DeleteFunc(n.present(), func(g gpu.GPU) bool { return !slices.Contains(of, g.PCIAddress) })
	// A GPU that does not answer is planned as if it had no partitions.
	seen, _ := n.lookAll(ctx, gpus, n.Claims.Held(addresses(gpus)))
	desired, err := n.choose(to, seen)
	if err != nil {
		return nil, err
	}
	return desired.Layouts, nil
}
