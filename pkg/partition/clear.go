package partition

import (
	"context"

	"k8s.io/klog/v2"

	"github.com/tranche-dev/tranche/api/v1alpha1"
)

// Clear takes away the partitions that wishes have made to stay, for a driver that goes
// for good. Those that claims hold stay until they are released. No mode is changed: a
// mode that claims or people have set meanwhile is theirs, and a change may take a reset
// of a GPU or a load of a driver. From then on the node follows no wish.
//
// A GPU that does not answer is left out: what is on it goes with its next reset. The
// error names what could not be taken away; Clear can be called again.
func (n *Node) Clear(ctx context.Context) error {
	n.turn.Lock()
	defer n.turn.Unlock()
	if in := n.intent(); in.Applying == nil && in.Applied.Wish.Hash == "" {
		return nil
	}
	seen, silent := n.survey(ctx)
	if silent != nil {
		klog.FromContext(ctx).Info("Partitions of these GPUs stay behind", "err", oneLine(silent))
	}
	wanted, err := n.choose(v1alpha1.ProfileSnapshot{Source: v1alpha1.FromDefault}, seen)
	if err != nil {
		return err
	}
	// Modes that were to be put back are not: those of now are taken for them.
	if err := n.update(func(in intent) intent { in.Before = nil; return in }); err != nil {
		return err
	}
	aim(seen, wanted.Shapes)
	if err := n.begin(wanted, seen); err != nil {
		return err
	}
	if err := n.applyAll(ctx, group{wanted: wanted, keepMemory: true}, seen); err != nil {
		return err
	}
	return n.update(func(in intent) intent { return in.finish(wanted, seen) })
}
