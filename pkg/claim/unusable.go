package claim

import (
	"errors"
	"fmt"
	"slices"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/claim/ledger"
	"github.com/tranche-dev/tranche/pkg/claim/plan"
	"github.com/tranche-dev/tranche/pkg/gpu"
)

// checkUnusable refuses a claim whose record cannot be used now, and a claim for a GPU that such a
// record may name.
func (m *Manager) checkUnusable(wanted ledger.Record) error {
	if err := m.Ledger.CheckClaim(wanted.Claim.UID); err != nil {
		return err
	}
	err := m.Ledger.CheckGPUs(gpusOf(wanted))
	cannot := (*ledger.UnusableError)(nil)
	if !errors.As(err, &cannot) {
		return err
	}
	return plan.NewConflict(
		fmt.Sprintf("%s cannot be prepared: %s of the same GPU, and Tranche cannot tell which; this is retried",
			deviceNames(wanted), whyUnusable(cannot.Unusable, "a part")),
		fmt.Sprintf("Claim %s was not prepared: %v", wanted.Claim, cannot))
}

// whyUnusable says what keeps a GPU from other claims, without the name of the claim.
func whyUnusable(u ledger.Unusable, what string) string {
	if u.Unreadable != nil {
		return "the record of another claim cannot be read, which may hold " + what
	}
	return "a newer version of Tranche has prepared " + what
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
	return plan.NewConflict(
		fmt.Sprintf("%s cannot be released: %s of the same GPU; this is retried", deviceNames(held), whyUnusable(cannot.Unusable, "a share")),
		fmt.Sprintf("Claim %s was not released: %v", held.Claim, err))
}

// reportUnusable reports records that cannot be used now.
func (m *Manager) reportUnusable() []Finding {
	var findings []Finding
	for _, n := range m.Ledger.Unusable() {
		reason := names.EventLedgerRecordNewer
		if n.Unreadable != nil {
			reason = names.EventLedgerUnreadable
		}
		findings = append(findings, Finding{
			Reason:  reason,
			Message: fmt.Sprintf("%v. Until then the claim is neither prepared nor released, and its GPUs are given to no other claim", &ledger.UnusableError{Unusable: n}),
		})
	}
	return findings
}

// explainedByUnusable reports whether a daemon may serve a claim whose record cannot be used now.
func (m *Manager) explainedByUnusable(name string) bool {
	return slices.ContainsFunc(m.Ledger.Unusable(), func(n ledger.Unusable) bool {
		return len(n.GPUs) == 0 || string(n.Claim.UID) == name ||
			slices.ContainsFunc(n.GPUs, func(g string) bool { return gpu.NameOf(g) == name })
	})
}

// copyIsNewer reports whether only a newer version can use the copy of a record in a CDI file.
// That version can rebuild a lost record from it.
func copyIsNewer(data []byte) bool {
	_, err := ledger.Decode(data)
	newer := (*ledger.UnusableError)(nil)
	return errors.As(err, &newer)
}
