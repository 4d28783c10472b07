package claim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/klog/v2"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/claim/ledger"
	"github.com/tranche-dev/tranche/pkg/claim/steps"
)

// podsTimeout is how long updating a claim's pods waits for its GPUs. The next reconciliation
// retries.
const podsTimeout = time.Second

// leftoverInUse reports containers that still run although their claim is gone; nil if none do.
// That happens when pods are deleted by force while the kubelet is down: the kubelet stops the
// containers when it is back, and releases the claim then. An earlier release would give the
// GPU to another claim under a running container.
func (m *Manager) leftoverInUse(r ledger.Record) *Finding {
	if m.Running == nil {
		return nil
	}
	running, err := m.Running(r.Pods)
	if err == nil && len(running) == 0 {
		return nil
	}
	f := &Finding{
		Reason:  names.EventLeftoverInUse,
		Message: fmt.Sprintf("claim %s (%s) is gone or was given other devices, but containers of its pods%s still run and hold %s; it is released when they have ended", r.Claim, r.Claim.UID, steps.PodList(ledger.Record{Pods: running}.PodNames()), deviceNames(r)),
	}
	if err != nil {
		f.Message = fmt.Sprintf("claim %s (%s) is gone or was given other devices, but still holds %s; it is not released, because Tranche cannot find out whether its containers still run", r.Claim, r.Claim.UID, deviceNames(r))
		f.Err = err
	}
	return f
}

// keepUp updates the record and the CDI file of an allocated claim.
func (m *Manager) keepUp(ctx context.Context, claim *resourceapi.ResourceClaim, r ledger.Record) []Finding {
	wanted, err := m.want(claim, m.GPUs())
	if err != nil || !steps.SameDevices(wanted, r) || len(wanted.Pods) == 0 {
		return nil // a device is gone, or no pod uses the claim
	}
	if r.HandedOut() && (m.isStale(r) || !m.CDI.Exists(r.Claim.UID)) {
		return m.prepareAgain(ctx, claim, r)
	}
	if err := m.updatePods(ctx, wanted); err != nil {
		klog.FromContext(ctx).V(2).Info("Cannot update the pods in the record of a claim, which is retried", "claim", r.Claim.String(), "claimUID", r.Claim.UID, "err", err)
	}
	return nil
}

// UpdatePods updates the pods in the record of a claim that is still allocated.
func (m *Manager) UpdatePods(ctx context.Context, c ledger.ClaimRef, getClaim GetClaim) error {
	r, ok := m.Ledger.Get(c.UID)
	if !ok || r.Released {
		return nil
	}
	claim, err := getClaim(ctx, c.Namespace, c.Name)
	if err != nil || claim == nil || claim.UID != c.UID || !stillAllocated(claim, r) {
		return err
	}
	wanted, err := m.want(claim, m.GPUs())
	if err != nil || !steps.SameDevices(wanted, r) || len(wanted.Pods) == 0 {
		return err
	}
	return m.updatePods(ctx, wanted)
}

// prepareAgain prepares a claim whose CDI file is missing or outdated. The kubelet does that
// only once for each start of a pod, but each start of a container reads the CDI file.
// Reloading the driver ends all processes on the GPU, destroys its partitions, and may change
// the numbers of its device files.
func (m *Manager) prepareAgain(ctx context.Context, claim *resourceapi.ResourceClaim, r ledger.Record) []Finding {
	if slices.ContainsFunc(r.Devices, func(d ledger.Device) bool { return m.LoadID(d.Placement.GPU) == "" }) {
		return nil // without a driver, containers cannot start
	}
	_, _, err := m.prepareClaim(ctx, claim, true)
	if errors.Is(err, errReleasedMeanwhile) {
		return nil
	}
	return []Finding{{
		Reason:  names.EventPreparedAgain,
		Message: fmt.Sprintf("the CDI file of claim %s was missing or of an earlier load of the driver; the claim is prepared again, so that its containers can be started again", r.Claim),
		Err:     err,
	}}
}

// updatePods updates the pods in the record of a claim: the kubelet prepares a claim once, even
// if more pods use it later. Pods that no longer use it stay while their containers run.
func (m *Manager) updatePods(ctx context.Context, wanted ledger.Record) error {
	if held, ok := m.Ledger.Get(wanted.Claim.UID); !ok || samePods(held.Pods, wanted.Pods) {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, podsTimeout, errors.New("its GPUs are busy"))
	defer cancel()
	held, unlock, err := m.lockRecord(ctx, names.OperationReconcile, wanted.Claim.UID, gpusOf(wanted))
	if err != nil {
		return err
	}
	defer unlock()
	if held == nil || !steps.SameDevices(*held, wanted) {
		return nil
	}
	left := slices.DeleteFunc(slices.Clone(held.Pods), func(p ledger.Pod) bool { return slices.Contains(wanted.Pods, p) })
	if m.Running != nil && len(left) > 0 {
		if left, err = m.Running(left); err != nil {
			return err
		}
	}
	pods := slices.Concat(wanted.Pods, left)
	if samePods(held.Pods, pods) {
		return nil
	}
	held.Pods = pods
	return m.Ledger.Put(*held)
}

func samePods(a, b []ledger.Pod) bool {
	missing := func(in, from []ledger.Pod) bool {
		return slices.ContainsFunc(from, func(p ledger.Pod) bool { return !slices.Contains(in, p) })
	}
	return !missing(a, b) && !missing(b, a)
}
