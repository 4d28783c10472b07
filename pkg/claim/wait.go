package claim

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tranche-dev/tranche/pkg/claim/ledger"
	"github.com/tranche-dev/tranche/pkg/claim/plan"
	"github.com/tranche-dev/tranche/pkg/gpu"
)

// await waits for what a share needs, while the record says that its claim is being
// prepared and nobody holds a lock. When it does not come in time, what was begun
// is released: the kubelet may never try again.
func (m *Manager) await(ctx context.Context, wanted ledger.Record, notReady *NotReadyError) error {
	start := time.Now()
	err := notReady.Wait(ctx)
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	m.observe("prepare", "ready", start, err)
	if err == nil {
		return nil
	}
	return errors.Join(fmt.Errorf("wait for %s: %w", notReady.What, err), m.abandon(ctx, wanted))
}

// abandon releases what was begun for a claim, with time of its own. A record that
// somebody else has finished, or replaced, since is not the one that is meant. Neither
// is one with devices that containers may use: the kubelet releases these.
func (m *Manager) abandon(ctx context.Context, wanted ledger.Record) error {
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), undoBudget, fmt.Errorf("the %s for undoing are used up", undoBudget))
	defer cancel()
	err := m.unprepare(ctx, wanted.Claim, func(now ledger.Record) bool {
		return now.State == ledger.Preparing && !now.HandedOut() && plan.SameDevices(now, wanted)
	}, m.releaseOrPostpone)
	if err != nil {
		return fmt.Errorf("and it could not be undone, which is tried again with the next attempt: %w", err)
	}
	return nil
}

// carryOver keeps to what a record says of the shares of a claim: they are set up,
// or half set up, by it. held is what is still true of the record, nil if nothing.
func carryOver(held *ledger.Record, wanted ledger.Record) {
	if held == nil || !plan.SameDevices(*held, wanted) {
		return
	}
	for i, d := range held.Devices {
		if d.IsShare() {
			now := &wanted.Devices[i]
			now.Placement, now.Amount, now.Before = d.Placement, d.Amount, d.Before
		}
	}
}

// readSettings writes down how the GPU of a share was set before anybody shared it:
// what another holder found, else what is found now. What is shared exists by now,
// because a GPU in MIG mode has no settings of its own. The share has not joined yet.
func (r *run) readSettings(ctx context.Context, device int) error {
	d := &r.record.Devices[device]
	if r.operation != "prepare" || d.Before != nil {
		return nil
	}
	known := append(r.Held([]string{d.Placement.GPU}), ledger.Record{Devices: r.record.Devices[:device]})
	before := knownBefore(d.Placement.GPU, known)
	if before == nil {
		var err error
		if before, err = r.Shares.Settings(ctx, d.Placement); err != nil {
			return fmt.Errorf("read how GPU %s is set, before %s changes it: %w", d.Placement.GPUName(), d.Name, err)
		}
	}
	if before == nil {
		return nil
	}
	d.Before = before
	return r.Ledger.Put(r.record)
}

// knownBefore is how a GPU was set before its first share, if a record says so.
func knownBefore(gpuID string, records []ledger.Record) *gpu.Settings {
	for _, r := range records {
		for _, d := range r.Devices {
			if d.IsShare() && d.Placement.GPU == gpuID && d.Before != nil {
				return d.Before
			}
		}
	}
	return nil
}
