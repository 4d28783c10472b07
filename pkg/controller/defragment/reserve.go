package defragment

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/defrag"
)

// reserve waits for the taints, proves the plan again and dry-runs the evictions.
func (d *Defragmenter) reserve(ctx context.Context, node *v1beta1.GPUNode, pod *corev1.Pod) (bool, error) {
	a := node.Status.Defragmentation
	tainted, err := d.isTainted(ctx, node.Name, a)
	now := d.Clock.Now()
	switch since := d.taintedSince[a.ID]; {
	case err != nil:
		return true, err
	case !tainted && now.Sub(a.StartTime.Time) >= taintTimeout:
		return false, d.abort(ctx, node, fmt.Sprintf("the plugin of the node did not taint the reserved devices in %s; check that its pod on node %s runs", taintTimeout, node.Name))
	case !tainted:
		return true, nil
	case since.IsZero():
		d.taintedSince[a.ID] = now
		return true, nil
	case now.Sub(since) < d.Settle:
		return true, nil
	}
	if stop, err := d.proveAgain(ctx, node, pod, a.Moves); stop || err != nil {
		return a.EndTime == nil, err
	}
	for i := range a.Moves {
		m := &a.Moves[i]
		refusal, err := d.Evict(ctx, podOf(m), true)
		if err != nil {
			return true, err
		}
		if refusal != "" {
			return false, d.abort(ctx, node, fmt.Sprintf("pod %s/%s cannot be evicted: %s", m.Namespace, m.Name, refusal))
		}
	}
	before := node.DeepCopy()
	a.State = v1beta1.DefragmentationEvicting
	if err := d.save(ctx, node, before); err != nil {
		return true, err
	}
	return d.evict(ctx, node, pod, true)
}

// isTainted reports whether the API server has the taints of an attempt. Devices that are not published
// need none.
func (d *Defragmenter) isTainted(ctx context.Context, node string, a *v1beta1.Defragmentation) (bool, error) {
	published, err := d.slices(ctx, node)
	if err != nil {
		return false, err
	}
	for i := range published {
		if published[i].Spec.Driver != names.DriverName {
			continue
		}
		for _, device := range published[i].Spec.Devices {
			isReserved := func(t resourceapi.DeviceTaint) bool { return t.Key == names.TaintReserved && t.Value == a.ID }
			if slices.Contains(a.ReservedDevices, device.Name) && !slices.ContainsFunc(device.Taints, isReserved) {
				return false, nil
			}
		}
	}
	return true, nil
}

// proveAgain proves the plan again for the moves that are left. It returns true if no more pods are evicted: the
// plan does not hold any more, or the waiting pod fits.
func (d *Defragmenter) proveAgain(ctx context.Context, node *v1beta1.GPUNode, pod *corev1.Pod, left []v1beta1.DefragmentationMove) (bool, error) {
	tainted, err := d.isTainted(ctx, node.Name, node.Status.Defragmentation)
	if err != nil {
		return false, err
	}
	if !tainted {
		return true, d.abort(ctx, node, fmt.Sprintf("the plugin of the node removed the taints of the reserved devices; check its pod on node %s, and the clock of the node", node.Name))
	}
	err = d.check(ctx, node, pod, left)
	var refusal *defrag.Refusal
	switch {
	case !errors.As(err, &refusal):
		return false, err
	case refusal.Reason == defrag.FitsNow:
		return true, d.awaitScheduling(ctx, node)
	}
	return true, d.abort(ctx, node, "the plan does not hold any more: "+refusal.Message)
}
