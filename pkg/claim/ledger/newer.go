package ledger

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// Newer is a record that only a newer version can use. It is never changed.
type Newer struct {
	Claim ClaimRef
	// Version wrote the record, MinReader is the oldest version that can use it.
	Version, MinReader int
	// GPUs are the PCI addresses of the GPUs of its devices; empty: unknown, so it may be
	// any GPU.
	GPUs []string
}

// On tells whether the record may hold devices of one of the GPUs.
func (n Newer) On(gpus []string) bool {
	return len(n.GPUs) == 0 || slices.ContainsFunc(n.GPUs, func(g string) bool { return slices.Contains(gpus, g) })
}

// NewerError says that only a newer version can use a record.
type NewerError struct{ Newer }

func (e *NewerError) Error() string {
	return fmt.Sprintf("the record of claim %s has version %d and needs a plugin that reads version %d, this one reads %d: run the newer version of Tranche on this node again",
		e.Claim, e.Version, e.MinReader, Version)
}

// newerError reads the fields that all versions have.
func newerError(data []byte, version, minReader int) error {
	var r struct {
		Claim   ClaimRef `json:"claim"`
		Devices []struct {
			Placement struct {
				GPU string `json:"gpu"`
			} `json:"placement"`
		} `json:"devices"`
	}
	n := Newer{Version: version, MinReader: minReader}
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
	return &NewerError{n}
}

// Newer returns the records that only a newer version can use, in the order of
// their claims' UIDs.
func (l *Ledger) Newer() []Newer {
	l.mu.RLock()
	defer l.mu.RUnlock()
	var all []Newer
	for _, n := range l.newer {
		all = append(all, n)
	}
	slices.SortFunc(all, func(a, b Newer) int { return strings.Compare(string(a.Claim.UID), string(b.Claim.UID)) })
	return all
}

// CheckClaim fails with a *NewerError if only a newer version can use the claim's
// record.
func (l *Ledger) CheckClaim(uid types.UID) error {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if n, ok := l.newer[uid]; ok {
		return &NewerError{n}
	}
	return nil
}

// CheckGPUs fails with a *NewerError if a record that only a newer version can use may hold
// devices of one of the GPUs.
func (l *Ledger) CheckGPUs(pciAddresses []string) error {
	for _, n := range l.Newer() {
		if n.On(pciAddresses) {
			return &NewerError{n}
		}
	}
	return nil
}
