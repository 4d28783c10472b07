package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/api/v1alpha1"
	"github.com/tranche-dev/tranche/pkg/text"
)

// tryEvictions finds who could not leave, before anybody is asked to.
func (r *Reconciler) tryEvictions(ctx context.Context, gpuNode *v1alpha1.GPUNode, f *Facts) error {
	if f.Unseen != "" {
		return nil
	}
	force := gpuNode.Status.Switch.Policy.AfterDeadline == v1alpha1.Force
	var errs []error
	tried := map[types.UID]bool{}
	for i := range f.Holders {
		h := &f.Holders[i]
		if h.Pod == nil {
			if hasPods(f.Holders, h.Claim) {
				continue // Who else has the claim may give it up when they have left.
			}
			for _, device := range h.Devices {
				f.Blockers = append(f.Blockers, v1alpha1.Blocker{Name: device, Message: fmt.Sprintf("reserved for %s by claim %s", h.Other, h.Claim)})
			}
			continue
		}
		if tried[h.Pod.UID] {
			continue
		}
		tried[h.Pod.UID] = true
		why, err := r.cannotLeave(ctx, h.Pod, force)
		if err != nil {
			errs = append(errs, err)
			f.Unseen = err.Error()
		} else if why != "" {
			f.Blockers = append(f.Blockers, blockerOf(h, why))
		}
	}
	return errors.Join(errs...)
}

func hasPods(holders []Holder, claim types.NamespacedName) bool {
	return slices.ContainsFunc(holders, func(h Holder) bool { return h.Claim == claim && h.Pod != nil })
}

// cannotLeave says why a pod that holds a GPU cannot be evicted, or with force deleted;
// empty: it can, or it is leaving already.
func (r *Reconciler) cannotLeave(ctx context.Context, p *Pod, force bool) (string, error) {
	if p.Ending != nil || p.Over {
		return "", nil
	}
	err := r.ask(ctx, p, force, true)
	switch {
	case err == nil, apierrors.IsNotFound(err), apierrors.IsConflict(err):
		return "", nil
	case refused(err):
		return refusalText(err), nil
	}
	return "", fmt.Errorf("try whether pod %s, which holds a GPU that changes, can be evicted: %w", p.NamespacedName, err)
}

// lookAtBlockers finds which blockers of a failed switch still block it, from time to
// time. A dry run disturbs nobody.
func (r *Reconciler) lookAtBlockers(ctx context.Context, gpuNode *v1alpha1.GPUNode, f *Facts) error {
	sw, report := gpuNode.Status.Switch, gpuNode.Status.Node
	if sw == nil || len(sw.Blockers) == 0 || report == nil {
		return nil
	}
	if !r.blockersDue(gpuNode) {
		f.LookAgain = r.memory.lookAt(gpuNode.Name)
		return nil
	}
	f.LookAgain = r.memory.looked(gpuNode.Name, r.Clock.Now())
	for i := range sw.Blockers {
		b := &sw.Blockers[i]
		if b.UID == "" {
			if heldByAny(report, b.Name) {
				f.Blockers = append(f.Blockers, *b)
			}
			continue
		}
		why, err := r.stillBlocks(ctx, b, sw.Policy.AfterDeadline == v1alpha1.Force)
		if err != nil {
			f.Blockers = nil
			return err
		}
		if why != "" {
			still := *b
			still.Message = text.Cut(why, mostBlockerText)
			f.Blockers = append(f.Blockers, still)
		}
	}
	f.Looked = true
	return nil
}

// stillBlocks says why a pod cannot leave, empty: it can, or is gone.
func (r *Reconciler) stillBlocks(ctx context.Context, b *v1alpha1.Blocker, force bool) (string, error) {
	var pod corev1.Pod
	err := r.Reader.Get(ctx, types.NamespacedName{Namespace: b.Namespace, Name: b.Name}, &pod)
	if apierrors.IsNotFound(err) || err == nil && pod.UID != b.UID {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read pod %s/%s, which could not be evicted: %w", b.Namespace, b.Name, err)
	}
	p := podOf(&pod)
	if p.Ending != nil && !p.Over {
		return "it is ending, and has not ended yet", nil
	}
	return r.cannotLeave(ctx, p, force)
}

// blockersDue tells whether it is time to look at the blockers of a failed switch. What
// the node holds is in its report, and costs nothing to look at.
func (r *Reconciler) blockersDue(gpuNode *v1alpha1.GPUNode) bool {
	sw, report := gpuNode.Status.Switch, gpuNode.Status.Node
	if sw == nil || len(sw.Blockers) == 0 || report == nil {
		return false
	}
	now := r.Clock.Now()
	if sw.Retry != nil && now.Before(sw.Retry.Time) {
		return false
	}
	released := func(b v1alpha1.Blocker) bool { return b.UID == "" && !heldByAny(report, b.Name) }
	return !now.Before(r.memory.lookAt(gpuNode.Name)) || slices.ContainsFunc(sw.Blockers, released)
}

func heldByAny(report *v1alpha1.NodeReport, device string) bool {
	return slices.ContainsFunc(report.GPUs, func(c v1alpha1.GPUReport) bool { return slices.Contains(c.Held, device) })
}

// blockedBy is whether a switch of a node is blocked by somebody, as far as the cache
// knows.
func (r *Reconciler) blockedBy(ctx context.Context, node string) bool {
	var gpuNode v1alpha1.GPUNode
	if err := r.Client.Get(ctx, client.ObjectKey{Name: node}, &gpuNode); err != nil {
		return false
	}
	return gpuNode.Status.State == v1alpha1.Failed && gpuNode.Status.Switch != nil && len(gpuNode.Status.Switch.Blockers) > 0
}
