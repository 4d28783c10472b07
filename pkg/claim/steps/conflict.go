package steps

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tranche-dev/tranche/pkg/claim/ledger"
	"github.com/tranche-dev/tranche/pkg/text"
)

// ConflictError says that another claim holds what was allocated to a claim. A retry succeeds
// after the other claim is released.
type ConflictError struct {
	// message is for the users of the claim, and names no object of another
	// namespace. detail is for administrators.
	message, detail string
}

func (e *ConflictError) Error() string { return e.message }

// NewConflict returns a ConflictError. message is for users of the claim, and names no object of
// another namespace. detail is for administrators.
func NewConflict(message, detail string) *ConflictError {
	return &ConflictError{message: message, detail: detail}
}

// Detail describes the conflict for administrators. Users of the claim must not see it: it names
// objects of other namespaces.
func (e *ConflictError) Detail() string { return e.detail }

// conflict returns a ConflictError. text returns the message for the names of the holders.
func conflict(wanted ledger.Record, holders []ledger.Record, text func(holders string) string) *ConflictError {
	return NewConflict(text(nameHolders(holders, wanted.Claim.Namespace)),
		fmt.Sprintf("Claim %s is not prepared: %s", wanted.Claim, text(nameHolders(holders, allNamespaces))))
}

// allNamespaces makes nameHolders name the claims of all namespaces.
const allNamespaces = ""

// few is how many objects of a kind a message names at most.
const few = 3

// nameHolders names the claims of one namespace, and counts those of others.
func nameHolders(holders []ledger.Record, namespace string) string {
	var names []string
	hidden := 0
	for _, r := range holders {
		if namespace == allNamespaces || r.Claim.Namespace == namespace {
			names = append(names, r.Claim.String()+PodList(r.PodNames()))
		} else {
			hidden++
		}
	}
	var parts []string
	switch len(names) {
	case 0:
	case 1:
		parts = append(parts, "claim "+names[0])
	default:
		parts = append(parts, "claims "+listSome(names))
	}
	switch hidden {
	case 0:
	case 1:
		parts = append(parts, "a claim in another namespace")
	default:
		parts = append(parts, fmt.Sprintf("%d claims in other namespaces", hidden))
	}
	return strings.Join(parts, " and ")
}

// PodList formats the pods of a claim: " (pod a, b)"; empty for none.
func PodList(pods []string) string {
	if len(pods) == 0 {
		return ""
	}
	return " (pod " + listSome(pods) + ")"
}

// listSome names the first few in alphabetical order, and counts the others.
func listSome(names []string) string {
	return text.List(slices.Sorted(slices.Values(names)), few)
}
