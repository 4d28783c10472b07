package ledger

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tranche-dev/tranche/pkg/durable"
)

// Unusable is a record that this process cannot use now: only a newer version can, or its file
// cannot be read. It is never changed.
type Unusable struct {
	Claim ClaimRef
	// Unreadable is why the file cannot be read; nil: the record needs a newer version.
	Unreadable error
	// Newer says which version the record needs.
	Newer *durable.NewerError
	// GPUs are the PCI addresses of the GPUs of its devices; empty: unknown, so it may be
	// any GPU.
	GPUs []string
}

// On reports whether the record may hold devices of one of the GPUs.
func (n Unusable) On(gpus []string) bool {
	return len(n.GPUs) == 0 || slices.ContainsFunc(n.GPUs, func(g string) bool { return slices.Contains(gpus, g) })
}

// UnusableError says why a record cannot be used now.
type UnusableError struct{ Unusable }

func (e *UnusableError) Error() string {
	if e.Unreadable != nil {
		return fmt.Sprintf("the record of claim %s cannot be read, which is retried: %v", e.Claim.UID, e.Unreadable)
	}
	return fmt.Sprintf("the record of claim %s cannot be used: %v", e.Claim, e.Newer)
}

// newerError reads the fields that all versions have.
func newerError(data []byte, newer *durable.NewerError) error {
	var r struct {
		Claim   ClaimRef `json:"claim"`
		Devices []struct {
			Placement struct {
				GPU string `json:"gpu"`
			} `json:"placement"`
		} `json:"devices"`
	}
	n := Unusable{Newer: newer}
	if err := json.Unmarshal(data, &r); err == nil {
		n.Claim = r.Claim
		for _, d := range r.Devices {
			if d.Placement.GPU == "" {
				n.GPUs = nil
				break
			}
			n.GPUs = append(n.GPUs, d.Placement.GPU)
		}
	}
	return &UnusableError{n}
}

// Unusable returns the records that cannot be used now, in the order of their claims' UIDs.
func (l *Ledger) Unusable() []Unusable {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return slices.SortedFunc(maps.Values(l.unusable), func(a, b Unusable) int { return strings.Compare(string(a.Claim.UID), string(b.Claim.UID)) })
}

// Check fails with an *UnusableError if the claim's record, or one that may hold devices of one of the
// GPUs, cannot be used now.
func (l *Ledger) Check(uid types.UID, pciAddresses []string) error {
	if err := l.CheckClaim(uid); err != nil {
		return err
	}
	return l.CheckGPUs(pciAddresses)
}

// CheckClaim fails with an *UnusableError if the claim's record cannot be used now.
func (l *Ledger) CheckClaim(uid types.UID) error {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if n, ok := l.unusable[uid]; ok {
		return &UnusableError{n}
	}
	return nil
}

// CheckGPUs fails with an *UnusableError if a record that cannot be used now may hold devices of
// one of the GPUs.
func (l *Ledger) CheckGPUs(pciAddresses []string) error {
	for _, n := range l.Unusable() {
		if n.On(pciAddresses) {
			return &UnusableError{n}
		}
	}
	return nil
}
