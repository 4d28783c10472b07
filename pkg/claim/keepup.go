package claim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
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
	if err == nil && len(running) == 0 && r.Group && m.isLoaded(r) {
		err = errGroup
	}
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

// errGroup is why nothing is known of the containers of a claim. No container survives a reload of the driver.
var errGroup = errors.New("the claim was reserved for a PodGroup, whose pods are not known: it is released when the kubelet releases it, or after a reboot of the node")

// isLoaded reports whether the driver of a device of the record is the one under which it was prepared.
func (m *Manager) isLoaded(r ledger.Record) bool {
	return slices.ContainsFunc(r.Devices, func(d ledger.Device) bool { return d.HandedOut && d.LoadID == m.LoadID(d.Placement.GPU) })
}

// keepUp updates the record and the CDI file of an allocated claim.
func (m *Manager) keepUp(ctx context.Context, claim *resourceapi.ResourceClaim, r ledger.Record) []Finding {
	wanted, err := m.want(claim, m.GPUs())
	if err != nil || !steps.SameDevices(wanted, r) || len(claim.Status.ReservedFor) == 0 {
		return nil // a device is gone, or nobody uses the claim
	}
	if r.HandedOut() && (m.isStale(r) || !m.CDI.Exists(r.Claim.UID)) {
		return m.prepareAgain(ctx, claim, r)
	}
	if err := m.updatePods(ctx, wanted); err != nil {
		klog.FromContext(ctx).V(2).Info("Cannot update the pods in the record of a claim, which is retried", "claim", r.Claim.String(), "claimUID", r.Claim.UID, "err", err)
	}
	return nil
}

// UpdatePods updates the pods in the record of a claim that is still allocated. pod is the UID of one to which
// the kubelet gave the claim, if that is known: it counts if the claim is reserved for a PodGroup.
func (m *Manager) UpdatePods(ctx context.Context, c ledger.ClaimRef, pod types.UID, getClaim GetClaim) error {
	r, ok := m.Ledger.Get(c.UID)
	if !ok || r.Released {
		return nil
	}
	claim, err := getClaim(ctx, c.Namespace, c.Name)
	if err != nil || claim == nil || claim.UID != c.UID || !stillAllocated(claim, r) {
		return err
	}
	wanted, err := m.want(claim, m.GPUs())
	if err != nil || !steps.SameDevices(wanted, r) || len(claim.Status.ReservedFor) == 0 {
		return err
	}
	if wanted.Group && pod != "" && !slices.ContainsFunc(wanted.Pods, func(p ledger.Pod) bool { return p.UID == pod }) {
		wanted.Pods = append(wanted.Pods, ledger.Pod{UID: pod})
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
	if held, ok := m.Ledger.Get(wanted.Claim.UID); !ok || held.Group == wanted.Group && samePods(held.Pods, wanted.Pods) {
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
	if held.Group == wanted.Group && samePods(held.Pods, pods) {
		return nil
	}
	held.Pods, held.Group = pods, wanted.Group
	return m.Ledger.Put(*held)
}

func samePods(a, b []ledger.Pod) bool {
	missing := func(in, from []ledger.Pod) bool {
		return slices.ContainsFunc(from, func(p ledger.Pod) bool { return !slices.Contains(in, p) })
	}
	return !missing(a, b) && !missing(b, a)
}
