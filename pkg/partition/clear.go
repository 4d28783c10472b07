package partition

import (
	"context"
	"fmt"

	"k8s.io/klog/v2"

	"github.com/tranche-dev/tranche/api/v1beta1"
)

// Clear removes static partitions before an uninstallation, and afterwards no profile is
// applied. Partitions that claims hold stay until they are released. Clear changes no mode:
// claims or people may have set it, and a change may need a reset or a driver reload.
//
// It skips GPUs that do not answer: the next reset removes their partitions. The error
// names what could not be removed; Clear can be called again. It fails if the journal cannot be
// read, or needs a newer version.
func (n *Node) Clear(ctx context.Context) error {
	n.working.Lock()
	defer n.working.Unlock()
	if err := n.Unread(); err != nil {
		return fmt.Errorf("the static partitions of this node stay, because %s, which records them, cannot be used: %w", n.File, err)
	}
	if in := n.journal(); in.Applying == nil && in.Applied.Snapshot.Hash == "" {
		return nil
	}
	seen, silent := n.survey(ctx)
	if silent != nil {
		klog.FromContext(ctx).Info("Partitions of these GPUs stay behind", "err", oneLine(silent))
	}
	desired, err := n.choose(v1beta1.ProfileSnapshot{Source: v1beta1.FromNone}, seen)
	if err != nil {
		return err
	}
	// The current modes stay.
	if err := n.update(func(in journal) journal { in.Before = nil; return in }); err != nil {
		return err
	}
	setDesired(seen, desired.Layouts)
	if err := n.begin(desired, seen); err != nil {
		return err
	}
	if err := n.applyAll(ctx, group{desired: desired, keepMemory: true}, seen); err != nil {
		return err
	}
	return n.update(func(in journal) journal { return in.finish(desired, seen) })
}
