package claim

import (
	"errors"
	"fmt"
	"slices"

	"github.com/tranche-dev/tranche/api/v1alpha1"
	"github.com/tranche-dev/tranche/pkg/claim/ledger"
	"github.com/tranche-dev/tranche/pkg/claim/plan"
	"github.com/tranche-dev/tranche/pkg/gpu"
)

// checkNewer refuses a claim whose record only a newer version can use, and a claim for a GPU
// that such a record names.
func (m *Manager) checkNewer(wanted ledger.Record) error {
	if err := m.Ledger.CheckClaim(wanted.Claim.UID); err != nil {
		return err
	}
	err := m.Ledger.CheckGPUs(gpusOf(wanted))
	newer := (*ledger.NewerError)(nil)
	if !errors.As(err, &newer) {
		return err
	}
	return plan.NewConflict(
		fmt.Sprintf("%s cannot be prepared: a newer version of Tranche has prepared a part of the same GPU, and this version cannot tell which; this is retried",
			deviceNames(wanted)),
		fmt.Sprintf("Claim %s was not prepared: %v", wanted.Claim, newer))
}

// checkNewerSharers refuses to release a share while a record that only a newer version can use
// may have another share of the same device.
func (m *Manager) checkNewerSharers(held ledger.Record) error {
	var shared []string
	for _, d := range held.Devices {
		if d.IsShare() {
			shared = append(shared, d.Placement.GPU)
		}
	}
	err := m.Ledger.CheckGPUs(shared)
	if len(shared) == 0 || err == nil {
		return nil
	}
	return plan.NewConflict(
		fmt.Sprintf("%s cannot be released: a newer version of Tranche has prepared a share of the same GPU; this is retried", deviceNames(held)),
		fmt.Sprintf("Claim %s was not released: %v", held.Claim, err))
}

// reportNewer reports records that only a newer version can use.
func (m *Manager) reportNewer() []Finding {
	var findings []Finding
	for _, n := range m.Ledger.Newer() {
		findings = append(findings, Finding{
			Reason:  v1alpha1.EventLedgerRecordNewer,
			Message: fmt.Sprintf("%v. Until then the claim is neither prepared nor released, and its GPUs are given to no other claim", &ledger.NewerError{Newer: n}),
		})
	}
	return findings
}

// explainedByNewer tells whether a daemon may serve a claim whose record only a newer version
// can use.
func (m *Manager) explainedByNewer(name string) bool {
	return slices.ContainsFunc(m.Ledger.Newer(), func(n ledger.Newer) bool {
		return len(n.GPUs) == 0 || string(n.Claim.UID) == name ||
			slices.ContainsFunc(n.GPUs, func(g string) bool { return gpu.NameOf(g) == name })
	})
}

// copyIsNewer tells whether only a newer version can use the copy of a record in a CDI file.
// That version can rebuild a lost record from it.
func copyIsNewer(data []byte) bool {
	_, err := ledger.Decode(data)
	newer := (*ledger.NewerError)(nil)
	return errors.As(err, &newer)
}
