package drain

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/text"
)

// Blockers finds the holders that cannot be evicted, by a dry run. With an error it returns
// those that were found so far.
func (d *Drainer) Blockers(ctx context.Context, holders []Holder, force bool) ([]v1beta1.Blocker, error) {
	var blockers []v1beta1.Blocker
	var errs []error
	tried := map[types.UID]bool{}
	for i := range holders {
		h := &holders[i]
		if h.Pod == nil {
			if hasPods(holders, h.Claim) {
				continue // The claim may be released when its pods have left.
			}
			for _, device := range h.Devices {
				blockers = append(blockers, v1beta1.Blocker{Kind: v1beta1.BlockerDevice, Name: device, Message: fmt.Sprintf("reserved for %s by claim %s", h.Other, h.Claim)})
			}
			continue
		}
		if tried[h.Pod.UID] {
			continue
		}
		tried[h.Pod.UID] = true
		why, err := d.cannotLeave(ctx, h.Pod, force)
		if err != nil {
			errs = append(errs, err)
		} else if why != "" {
			blockers = append(blockers, h.Blocker(why))
		}
	}
	return blockers, errors.Join(errs...)
}

func hasPods(holders []Holder, claim types.NamespacedName) bool {
	return slices.ContainsFunc(holders, func(h Holder) bool { return h.Claim == claim && h.Pod != nil })
}

// StillBlocks repeats the dry run for a pod that could not be evicted. It returns the pod
// with the current reason, nil if it can be evicted or is gone.
func (d *Drainer) StillBlocks(ctx context.Context, b *v1beta1.Blocker, force bool) (*v1beta1.Blocker, error) {
	var pod corev1.Pod
	err := d.Reader.Get(ctx, types.NamespacedName{Namespace: b.Namespace, Name: b.Name}, &pod)
	if apierrors.IsNotFound(err) || err == nil && pod.UID != b.UID {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read pod %s/%s, which could not be evicted: %w", b.Namespace, b.Name, err)
	}
	p := podOf(&pod)
	why := "it is ending, and has not ended yet"
	if p.Ending == nil || p.Over {
		if why, err = d.cannotLeave(ctx, p, force); err != nil || why == "" {
			return nil, err
		}
	}
	still := *b
	still.Message = text.Cut(why, v1beta1.MaxListedText)
	return &still, nil
}

// cannotLeave says why a pod that holds a GPU cannot be evicted, or deleted with force. It is
// empty if it can, or if the pod is already being deleted.
func (d *Drainer) cannotLeave(ctx context.Context, p *Pod, force bool) (string, error) {
	if p.Ending != nil || p.Over {
		return "", nil
	}
	why, err := refusalIn(d.ask(ctx, p, force, true))
	if err != nil {
		return "", fmt.Errorf("dry-run the eviction of pod %s, which holds a GPU that changes: %w", p.NamespacedName, err)
	}
	return why, nil
}
