package partition

import (
	"context"
	"fmt"
	"reflect"
	"slices"

	"k8s.io/klog/v2"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/profile"
)

// Restore reapplies the applied profile where the hardware lost it: a reboot removes
// partitions and resets AMD's modes. It is called at the start, after a driver was
// reloaded, and when a GPU appears. It does not change GPUs whose claims would be affected.
// The error says what was not restored.
//
// It does nothing while another profile is being applied, because the controller asks for
// that again.
func (n *Node) Restore(ctx context.Context) error {
	n.working.Lock()
	defer n.working.Unlock()
	in := n.journal()
	if in.Applying != nil || in.Applied.Snapshot.Hash == "" {
		return nil
	}
	seen, silent := n.survey(ctx)
	desired, err := n.choose(in.Applied.Snapshot, seen)
	if err != nil {
		return join(silent, about(err, addresses(n.GPUs())...))
	}
	if _, err := n.confirmedChanges(ctx, seen, desired); err != nil {
		return join(silent, err)
	}
	g := group{desired: desired}
	lost := n.memoryObstacle(seen)
	if lost != nil {
		g.keepMemory = true
		ignoreMemory(seen)
	}
	refusal := n.refusal(profile.NewChanges(seen))
	if refusal == nil {
		if err := n.settle(desired, seen); err != nil {
			return err
		}
	}
	if len(n.groups(seen)) == 0 {
		return join(silent, lost, refusal)
	}
	klog.FromContext(ctx).Info("Some GPUs lost the applied profile; restoring it", "profile", in.Applied.Snapshot.ProfileName)
	if err := n.update(func(in journal) journal { return in.adopt(desired) }); err != nil {
		return err
	}
	return join(silent, lost, refusal, n.applyAll(ctx, g, seen))
}

// settle records the desired layout of GPUs whose hardware need not change: they have
// appeared, or answer again, after the others were done. It deletes their entries for an
// unfinished change.
func (n *Node) settle(desired resolvedProfile, seen []profile.NodeGPU) error {
	groups := slices.Concat(n.groups(seen)...)
	in := n.journal()
	var settled []string
	for i := range seen {
		gpuID := seen[i].PCIAddress
		same := reflect.DeepEqual(in.Layouts[gpuID], desired.Layouts[gpuID])
		if (in.unsettled(gpuID) || !same) && !slices.ContainsFunc(groups, func(g gpu.GPU) bool { return g.PCIAddress == gpuID }) {
			settled = append(settled, gpuID)
		}
	}
	if settled == nil {
		return nil
	}
	return n.update(func(in journal) journal {
		in = in.adopt(desired)
		for _, gpuID := range settled {
			in = in.done(gpuID, desired.Layouts[gpuID])
		}
		return in
	})
}

// memoryObstacle says why the memory mode cannot be restored, nil if it can be or need not
// be.
func (n *Node) memoryObstacle(seen []profile.NodeGPU) error {
	changes := profile.NewChanges(seen)
	step := memoryStep(changes)
	if step == nil {
		return nil
	}
	var together profile.Changes
	for _, c := range changes.GPUs {
		if c.Vendor == step.Vendor {
			together.GPUs = append(together.GPUs, c)
		}
	}
	if !n.MemoryModes {
		return n.refusal(together)
	}
	if err := inTheWay(together); err != nil {
		return about(fmt.Errorf("%s: %w", step, err), withMemoryStep(changes)...)
	}
	return n.lostInTheWay(together)
}

// adopt returns the journal when the profile also applies to GPUs that have appeared.
func (in journal) adopt(desired resolvedProfile) journal {
	in = in.clone()
	if in.Ours == nil {
		in.Ours = map[string][]gpu.Placement{}
	}
	for gpuID, layout := range desired.Layouts {
		if !sameLayout(in.Layouts[gpuID], layout) {
			in.Ours[gpuID] = union(in.Ours[gpuID], layout.Static)
		}
	}
	in.Applied = desired
	return in
}
