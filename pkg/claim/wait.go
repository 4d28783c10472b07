package claim

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/claim/ledger"
	"github.com/tranche-dev/tranche/pkg/claim/steps"
	"github.com/tranche-dev/tranche/pkg/gpu"
)

// await waits for a daemon without a lock, while the record says that the claim is being
// prepared. If that fails, the claim is released: the kubelet may never retry.
func (m *Manager) await(ctx context.Context, wanted ledger.Record, notReady *NotReadyError) error {
	start := time.Now()
	err := notReady.Wait(ctx)
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	m.observe(names.OperationPrepare, names.PhaseReady, start, err)
	if err == nil {
		return nil
	}
	return errors.Join(fmt.Errorf("wait for %s: %w", notReady.What, err), m.abandon(ctx, wanted))
}

// abandon releases a claim that is partly prepared, with a time limit of its own. It does not
// touch a record that was finished or replaced since, or that has devices that containers may
// use: the kubelet releases these.
func (m *Manager) abandon(ctx context.Context, wanted ledger.Record) error {
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), undoBudget, fmt.Errorf("not finished within %s, the limit for undoing", undoBudget))
	defer cancel()
	err := m.unprepare(ctx, wanted.Claim, func(now ledger.Record) bool {
		return now.State == ledger.Preparing && !now.HandedOut() && steps.SameDevices(now, wanted)
	}, m.release)
	if err != nil {
		return fmt.Errorf("and it could not be undone, which the next attempt retries: %w", err)
	}
	return nil
}

// readSettings records the settings that the GPU of a share had before it was shared: those in
// another holder's record, otherwise the current ones. The base exists by now, and the share has
// not joined yet.
func (r *run) readSettings(ctx context.Context, device int) error {
	d := &r.record.Devices[device]
	if r.operation != names.OperationPrepare || d.Before != nil {
		return nil
	}
	known := append(r.Held([]string{d.Placement.GPU}), ledger.Record{Devices: r.record.Devices[:device]})
	before := knownBefore(d.Placement.GPU, known)
	if before == nil {
		var err error
		if before, err = r.Shares.Settings(ctx, d.Placement); err != nil {
			return fmt.Errorf("read the settings of GPU %s before %s changes them: %w", d.Placement.GPUName(), d.Name, err)
		}
	}
	if before == nil {
		return nil
	}
	d.Before = before
	return r.Ledger.Put(r.record)
}

// knownBefore returns the settings that a GPU had before its first share, if a record has them.
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
