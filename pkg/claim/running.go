package claim

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/claim/ledger"
	"github.com/tranche-dev/tranche/pkg/gpu"
)

// stopStrays stops daemons that serve no record: a plugin died while it released the claim, or
// the record was lost.
func (m *Manager) stopStrays(ctx context.Context) []Finding {
	if m.Shares == nil {
		return nil
	}
	// Listed before the records are read: a record is written before its daemon starts.
	running, err := m.Shares.Running()
	if err != nil {
		return []Finding{{Reason: names.EventDaemonsUnreadable, Message: "the daemons of shares cannot be listed", Err: err}}
	}
	var findings []Finding
	for _, name := range running {
		stopped, err := m.stopStray(ctx, name)
		if stopped || err != nil {
			findings = append(findings, Finding{
				Reason:  names.EventStrayDaemonStopped,
				Message: fmt.Sprintf("daemon %s serves no claim in the ledger and is stopped", name),
				Err:     err,
			})
		}
	}
	return findings
}

// stopStray stops a daemon if no record needs it under the locks of its GPUs.
func (m *Manager) stopStray(ctx context.Context, name string) (stopped bool, err error) {
	if err := m.Refresh(ctx); err != nil || m.explained(name) {
		return false, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, Budget, fmt.Errorf("not finished within %s, the limit for stopping daemon %s", Budget, name))
	defer cancel()
	unlock, err := m.lock(ctx, "reconcile", m.gpusServedBy(name))
	if err != nil {
		return false, err
	}
	defer unlock()
	if m.explained(name) {
		return false, nil
	}
	return true, m.Shares.Stop(ctx, name)
}

// gpusServedBy returns the GPUs that a daemon may serve: the GPU that it is named for, otherwise
// all.
func (m *Manager) gpusServedBy(name string) []string {
	var all []string
	for _, g := range m.GPUs() {
		if g.Name() == name {
			return []string{g.PCIAddress}
		}
		all = append(all, g.PCIAddress)
	}
	return all
}

// explained reports whether a daemon serves a share in a record.
func (m *Manager) explained(name string) bool {
	return m.explainedByUnusable(name) || slices.ContainsFunc(ledger.InUse(m.Ledger.List()), func(r ledger.Record) bool {
		return slices.ContainsFunc(r.Devices, func(d ledger.Device) bool {
			return d.IsShare() && m.Shares.Serves(r.Claim, d) == name
		})
	})
}

// Rejoin restarts the dead daemons of a prepared claim, and does not wait until they are ready.
// It does nothing for other claims.
func (m *Manager) Rejoin(ctx context.Context, uid types.UID) error {
	ctx, cancel := context.WithTimeoutCause(ctx, Budget, fmt.Errorf("not finished within %s, the limit for restarting the daemons of a claim", Budget))
	defer cancel()
	held, unlock, err := m.lockRecord(ctx, names.OperationReconcile, uid, nil)
	if err != nil {
		return err
	}
	defer unlock()
	if held == nil || held.State != ledger.Prepared || m.Shares == nil {
		return nil
	}
	r := &run{Manager: m, operation: "reconcile", record: *held}
	_, r.sharers = m.others(*held)
	for i, d := range held.Devices {
		if !d.IsShare() || m.Lapsed(d) {
			continue
		}
		err := r.join(ctx, i)
		if notReady := (*NotReadyError)(nil); err != nil && !errors.As(err, &notReady) {
			return err
		}
	}
	return nil
}

// explainedByUnusable reports whether a daemon may serve a claim whose record cannot be used now.
func (m *Manager) explainedByUnusable(name string) bool {
	return slices.ContainsFunc(m.Ledger.Unusable(), func(n ledger.Unusable) bool {
		return len(n.GPUs) == 0 || string(n.Claim.UID) == name ||
			slices.ContainsFunc(n.GPUs, func(g string) bool { return gpu.NameOf(g) == name })
	})
}
