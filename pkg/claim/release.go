package claim

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/klog/v2"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/claim/ledger"
	"github.com/tranche-dev/tranche/pkg/claim/steps"
	"github.com/tranche-dev/tranche/pkg/gpu"
)

// Unprepare releases the devices of a claim. It cancels a Prepare of the claim that is in
// progress. A claim that holds nothing is no error. What the hardware does not let go is left to
// FinishReleases (see Leftovers), except while the driver names processes that use it.
func (m *Manager) Unprepare(ctx context.Context, claim ledger.ClaimRef) error {
	ctx, cancel := context.WithTimeoutCause(ctx, Budget, fmt.Errorf("not finished within %s, the limit for one Unprepare", Budget))
	defer cancel()
	if err := m.prepares.end(ctx, claim.UID); err != nil {
		return err
	}
	return m.unprepare(ctx, claim, func(ledger.Record) bool { return true }, m.releaseAsAsked)
}

// unprepare releases the claim's record if meant returns true for it under the locks of its
// GPUs.
func (m *Manager) unprepare(ctx context.Context, claim ledger.ClaimRef, meant func(ledger.Record) bool, release func(context.Context, ledger.Record) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, Budget, fmt.Errorf("not finished within %s, the limit for one Unprepare", Budget))
	defer cancel()
	held, unlock, err := m.lockRecord(ctx, names.OperationUnprepare, claim.UID, nil)
	if err != nil {
		return err
	}
	defer unlock()
	if err := m.Ledger.CheckClaim(claim.UID); err != nil {
		return err
	}
	if held == nil {
		return m.CDI.Remove(claim.UID)
	}
	if !meant(*held) {
		return nil
	}
	return release(ctx, *held)
}

// release undoes a record that nobody asked to release. The caller holds the locks of its GPUs.
func (m *Manager) release(ctx context.Context, held ledger.Record) error {
	return m.perform(ctx, &run{record: held})
}

// releaseAsAsked undoes a record whose pods have ended. The caller holds the locks of its GPUs.
func (m *Manager) releaseAsAsked(ctx context.Context, held ledger.Record) error {
	return m.perform(ctx, &run{record: held, asked: true})
}

func (m *Manager) perform(ctx context.Context, r *run) error {
	held := r.record
	if err := m.checkSharers(held); err != nil {
		return err
	}
	r.Manager, r.operation, r.live = m, names.OperationUnprepare, map[string][]gpu.Partition{}
	_, r.sharers = m.others(held)
	if now := m.current(&held); now != nil {
		if err := r.lookAt(ctx, madeOn(*now)); err != nil {
			return err
		}
	}
	if err := r.do(ctx, steps.Release(held, r.live, r.sharers, m.Static)); err != nil {
		return err
	}
	klog.FromContext(ctx).Info("Released", "claim", held.Claim.String(), "claimUID", held.Claim.UID)
	m.announceRelease()
	return nil
}

// checkSharers refuses to release a share while a record that cannot be used now may have another
// share of the same device.
func (m *Manager) checkSharers(held ledger.Record) error {
	var shared []string
	for _, d := range held.Devices {
		if d.IsShare() {
			shared = append(shared, d.Placement.GPU)
		}
	}
	err := m.Ledger.CheckGPUs(shared)
	cannot := (*ledger.UnusableError)(nil)
	if len(shared) == 0 || !errors.As(err, &cannot) {
		return nil
	}
	return steps.NewConflict(
		fmt.Sprintf("%s cannot be released: %s of the same GPU; this is retried", deviceNames(held), whyUnusable(cannot.Unusable, "a share")),
		fmt.Sprintf("Claim %s was not released: %v", held.Claim, err))
}
