package claim

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/pkg/claim/ledger"
	"github.com/tranche-dev/tranche/pkg/gpu"
)

// What the users of a claim are told names no object of another namespace, in every
// conflict that there is. Administrators are told.
func TestConflictsNameNobodyOfAnotherNamespace(t *testing.T) {
	one, three := mig(0, "1g.10gb", 2, 1), mig(0, "3g.40gb", 0, 4)
	secret := func(uid string, r ledger.Record) ledger.Record {
		r.Claim = ledger.ClaimRef{UID: "uid-secret", Namespace: "secret-ns", Name: "secret-" + uid}
		r.Pods = []ledger.Pod{{Name: "secret-pod"}}
		return r
	}
	half := secret("half", holding("x", ledger.Prepared, memoryShare(0), memory(40)))
	own := holding("own", ledger.Prepared, memoryShare(0), memory(20))
	for name, tt := range map[string]struct {
		s    situation
		want string
	}{
		"held": {
			situationOf(one).with(func(s *situation) {
				s.others = []ledger.Record{secret("b", recordOfClaim("b", ledger.Prepared, three))}
			}),
			"cannot be given out: a claim in another namespace still holds gpu-0000-01-00-0-mig-3g-40gb-0",
		},
		"partition still there": {
			situationOf(one).with(func(s *situation) {
				s.others = []ledger.Record{secret("b", recordOfClaim("b", ledger.Prepared, three))}
				s.others[0].Devices[0].Placement.Consumes = nil
				s.live = map[string][]gpu.Partition{address(0): {partitionAt(three, "MIG-b")}}
			}),
			"partition gpu-0000-01-00-0-mig-3g-40gb-0 of a claim in another namespace is still there",
		},
		"shares":                     {wantsShare(memoryShare(0), memory(41), half), "is held by a claim in another namespace, and"},
		"shares of several":          {wantsShare(memoryShare(0), memory(41), half, half), "is held by 2 claims in other namespaces, and"},
		"shares, one's own among it": {wantsShare(memoryShare(0), memory(41), half, own), "is held by claim team/claim-own and a claim in another namespace, and"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := planPrepare(tt.s)
			require.ErrorContains(t, err, tt.want)
			assert.NotContains(t, err.Error(), "secret")
			var conflict *ConflictError
			require.ErrorAs(t, err, &conflict)
			assert.Contains(t, conflict.Detail(), "secret-ns/secret-")
			assert.Contains(t, conflict.Detail(), "(pod secret-pod)")
			assert.Contains(t, conflict.Detail(), "Claim team/claim-a is not prepared: ")
		})
	}
}

// A claim can have 256 pods, and a message few.
func TestConflictsNameFewPods(t *testing.T) {
	other := recordOfClaim("b", ledger.Prepared, mig(0, "1g.10gb", 2, 1))
	for range 256 {
		other.Pods = append(other.Pods, ledger.Pod{Name: strings.Repeat("p", 253)})
	}
	_, err := planPrepare(situationOf(mig(0, "1g.10gb", 2, 1)).with(func(s *situation) { s.others = []ledger.Record{other} }))
	require.ErrorContains(t, err, " and 253 more)")
	assert.Less(t, len(err.Error()), 1100)
}
