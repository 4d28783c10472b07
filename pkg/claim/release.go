package claim

import (
	"context"
	"fmt"

	"k8s.io/klog/v2"

	"github.com/tranche-dev/tranche/pkg/claim/ledger"
	"github.com/tranche-dev/tranche/pkg/claim/plan"
	"github.com/tranche-dev/tranche/pkg/gpu"
)

// Unprepare releases the devices of a claim. It cancels a Prepare of the claim that is in
// progress. A claim that holds nothing is no error. If the driver cannot be used now, FinishReleases
// removes the partitions later.
func (m *Manager) Unprepare(ctx context.Context, claim ledger.ClaimRef) error {
	ctx, cancel := context.WithTimeoutCause(ctx, Budget, fmt.Errorf("the %s for one Unprepare are used up", Budget))
	defer cancel()
	if err := m.prepares.end(ctx, claim.UID); err != nil {
		return err
	}
	return m.unprepare(ctx, claim, func(ledger.Record) bool { return true }, m.releaseOrPostpone)
}

// unprepare releases the claim's record if meant returns true for it under the locks of its
// GPUs.
func (m *Manager) unprepare(ctx context.Context, claim ledger.ClaimRef, meant func(ledger.Record) bool, release func(context.Context, ledger.Record) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, Budget, fmt.Errorf("the %s for one Unprepare are used up", Budget))
	defer cancel()

	if err := m.Refresh(ctx); err != nil {
		return err
	}
	if err := m.Ledger.CheckClaim(claim.UID); err != nil {
		return err
	}
	held, ok := m.Ledger.Get(claim.UID)
	if !ok {
		return m.CDI.Remove(claim.UID)
	}
	unlock, err := m.lock(ctx, "unprepare", gpusOf(held))
	if err != nil {
		return err
	}
	defer unlock()
	if held, ok = m.Ledger.Get(claim.UID); !ok || !meant(held) {
		return nil
	}
	return release(ctx, held)
}

// release undoes a record. The caller holds the locks of its GPUs.
func (m *Manager) release(ctx context.Context, held ledger.Record) error {
	if err := m.checkNewerSharers(held); err != nil {
		return err
	}
	_, sharers := m.others(held)
	r := &run{Manager: m, operation: "unprepare", record: held, live: map[string][]gpu.Partition{}, sharers: sharers}
	if now := m.current(&held); now != nil {
		if err := r.lookAt(ctx, madeOn(*now)); err != nil {
			return err
		}
	}
	if err := r.do(ctx, plan.Release(held, r.live, sharers, m.static)); err != nil {
		return err
	}
	klog.FromContext(ctx).Info("Released", "claim", held.Claim.String(), "claimUID", held.Claim.UID)
	m.announceRelease()
	return nil
}
