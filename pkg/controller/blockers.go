package controller

import (
	"context"
	"slices"

	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/controller/state"
)

// tryEvictions finds pods that cannot be evicted, before any pod is.
func (r *Reconciler) tryEvictions(ctx context.Context, gpuNode *v1beta1.GPUNode, f *state.Facts) (err error) {
	if f.Unseen != "" {
		return nil
	}
	f.Blockers, err = r.drainer.Blockers(ctx, f.Holders, gpuNode.Status.Switch.Policy.AfterDeadline == v1beta1.Force)
	if err != nil {
		f.Unseen = err.Error()
	}
	return err
}

// lookAtBlockers checks from time to time, by dry runs, which blockers of a failed switch
// still block it.
func (r *Reconciler) lookAtBlockers(ctx context.Context, gpuNode *v1beta1.GPUNode, f *state.Facts) error {
	if !r.blockersDue(gpuNode) {
		f.LookAgain = r.memory.lookAt(gpuNode.Name)
		return nil
	}
	f.LookAgain = r.memory.looked(gpuNode.Name, r.Clock.Now())
	sw, report := gpuNode.Status.Switch, gpuNode.Status.Node
	for i := range sw.Blockers {
		b := &sw.Blockers[i]
		if b.Kind == v1beta1.BlockerDevice {
			if heldByAny(report, b.Name) {
				f.Blockers = append(f.Blockers, *b)
			}
			continue
		}
		still, err := r.drainer.StillBlocks(ctx, b, sw.Policy.AfterDeadline == v1beta1.Force)
		if err != nil {
			f.Blockers = nil
			return err
		}
		if still != nil {
			f.Blockers = append(f.Blockers, *still)
		}
	}
	f.Looked = true
	return nil
}

// blockersDue reports whether to check the blockers of a failed switch now. Devices in the
// node's report are checked at any time, because that needs no request.
func (r *Reconciler) blockersDue(gpuNode *v1beta1.GPUNode) bool {
	sw, report := gpuNode.Status.Switch, gpuNode.Status.Node
	if sw == nil || len(sw.Blockers) == 0 || report == nil {
		return false
	}
	now := r.Clock.Now()
	if sw.RetryTime != nil && now.Before(sw.RetryTime.Time) {
		return false
	}
	released := func(b v1beta1.Blocker) bool { return b.Kind == v1beta1.BlockerDevice && !heldByAny(report, b.Name) }
	return !now.Before(r.memory.lookAt(gpuNode.Name)) || slices.ContainsFunc(sw.Blockers, released)
}

func heldByAny(report *v1beta1.NodeReport, device string) bool {
	return slices.ContainsFunc(report.GPUs, func(c v1beta1.GPUReport) bool { return slices.Contains(c.HeldDevices, device) })
}

// blocked reports whether a switch of the node failed because of blockers.
func blocked(s *v1beta1.GPUNodeStatus) bool {
	return s.State == v1beta1.Failed && s.Switch != nil && len(s.Switch.Blockers) > 0
}
