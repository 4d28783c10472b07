package claim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/klog/v2"

	"github.com/tranche-dev/tranche/api/v1alpha1"
	"github.com/tranche-dev/tranche/pkg/claim/ledger"
	"github.com/tranche-dev/tranche/pkg/claim/plan"
)

// podsTimeout is how long the writing of a claim's pods waits for its GPUs. It is
// tried again with the next round.
const podsTimeout = time.Second

// leftoverInUse says that containers still run which may use what a record holds,
// although its claim is gone; nil if none do. That happens when pods are deleted by
// force while the kubelet is down: the kubelet ends the containers when it is back,
// and asks for the release then. A release before that would give a GPU to somebody
// else under a running container.
func (m *Manager) leftoverInUse(r ledger.Record) *Finding {
	if m.Running == nil {
		return nil
	}
	running, err := m.Running(r.Pods)
	if err == nil && len(running) == 0 {
		return nil
	}
	f := &Finding{
		Reason:  v1alpha1.EventLeftoverInUse,
		Message: fmt.Sprintf("claim %s (%s) is gone or was given other devices, but containers of its pods%s still run and hold %s; it is released when they have ended", r.Claim, r.Claim.UID, plan.PodList(ledger.Record{Pods: running}.PodNames()), deviceNames(r)),
	}
	if err != nil {
		f.Message = fmt.Sprintf("claim %s (%s) is gone or was given other devices, but still holds %s; it is not released, because it cannot be told whether its containers still run", r.Claim, r.Claim.UID, deviceNames(r))
		f.Err = err
	}
	return f
}

// keepUp keeps the record of an allocated claim, and what it stands for, up to date.
func (m *Manager) keepUp(ctx context.Context, claim *resourceapi.ResourceClaim, r ledger.Record) []Finding {
	wanted, err := m.want(claim)
	if err != nil || !plan.SameDevices(wanted, r) || len(wanted.Pods) == 0 {
		return nil // a device is gone, or nobody uses the claim: nothing to keep up
	}
	if r.HandedOut() && (m.isStale(r) || !m.CDI.Exists(r.Claim.UID)) {
		return m.prepareAgain(ctx, claim, r)
	}
	if err := m.updatePods(ctx, wanted); err != nil {
		klog.FromContext(ctx).V(2).Info("The pods of a claim are not written down", "claim", r.Claim.String(), "claimUID", r.Claim.UID, "err", err)
	}
	return nil
}

// prepareAgain prepares a claim as the kubelet would if it knew that this is needed: it
// asks once for each start of a pod, and takes the container's description from the CDI
// file at each start of a container. A load of the driver, which ends all processes on
// the GPU, takes its partitions along and may give its device files other numbers.
func (m *Manager) prepareAgain(ctx context.Context, claim *resourceapi.ResourceClaim, r ledger.Record) []Finding {
	if slices.ContainsFunc(r.Devices, func(d ledger.Device) bool { return m.LoadID(d.Placement.GPU) == "" }) {
		return nil // without a driver there is nothing to describe
	}
	_, err := m.prepareClaim(ctx, claim, true)
	if errors.Is(err, errReleasedMeanwhile) {
		return nil
	}
	return []Finding{{
		Reason:  v1alpha1.EventPreparedAgain,
		Message: fmt.Sprintf("the CDI file of claim %s was missing or of an earlier load of the driver; the claim is prepared again, so that its containers can be started again", r.Claim),
		Err:     err,
	}}
}

// updatePods writes down who uses a claim now: the kubelet asks for a claim once,
// whichever pods come to share it later. Pods that left it stay in the record as long
// as their containers run.
func (m *Manager) updatePods(ctx context.Context, wanted ledger.Record) error {
	if held, ok := m.Ledger.Get(wanted.Claim.UID); !ok || samePods(held.Pods, wanted.Pods) {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, podsTimeout, errors.New("its GPUs are busy"))
	defer cancel()
	unlock, err := m.lock(ctx, "reconcile", gpusOf(wanted))
	if err != nil {
		return err
	}
	defer unlock()
	held, ok := m.Ledger.Get(wanted.Claim.UID)
	if !ok || !plan.SameDevices(held, wanted) {
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
	return m.Ledger.Put(held)
}

func samePods(a, b []ledger.Pod) bool {
	missing := func(in, from []ledger.Pod) bool {
		return slices.ContainsFunc(from, func(p ledger.Pod) bool { return !slices.Contains(in, p) })
	}
	return !missing(a, b) && !missing(b, a)
}
