package steps

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/pkg/claim/ledger"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/test/claims"
)

// What the users of a claim are told names no object of another namespace, in every
// conflict that there is. Administrators are told.
func TestConflictsNameNobodyOfAnotherNamespace(t *testing.T) {
	one, three := claims.MIG(0, "1g.10gb", 2, 1), claims.MIG(0, "3g.40gb", 0, 4)
	secret := func(uid string, r ledger.Record) ledger.Record {
		r.Claim = ledger.ClaimRef{UID: "uid-secret", Namespace: "secret-ns", Name: "secret-" + uid}
		r.Pods = []ledger.Pod{{Name: "secret-pod"}}
		return r
	}
	half := secret("half", claims.Holding("x", ledger.Prepared, claims.MemoryShare(0), claims.Memory(40)))
	own := claims.Holding("own", ledger.Prepared, claims.MemoryShare(0), claims.Memory(20))
	for name, tt := range map[string]struct {
		s    Situation
		want string
	}{
		"held": {
			situationOf(one).with(func(s *Situation) {
				s.Others = []ledger.Record{secret("b", claims.Record("b", ledger.Prepared, three))}
			}),
			"cannot be prepared: a claim in another namespace still holds gpu-0000-01-00-0-mig-3g-40gb-0",
		},
		"partition still there": {
			situationOf(one).with(func(s *Situation) {
				s.Others = []ledger.Record{secret("b", claims.Record("b", ledger.Prepared, three))}
				s.Others[0].Devices[0].Placement.Consumes = nil
				s.Live = map[string][]gpu.Partition{claims.Address(0): {claims.PartitionAt(three, "MIG-b")}}
			}),
			"partition gpu-0000-01-00-0-mig-3g-40gb-0 of a claim in another namespace is still there",
		},
		"shares":                     {wantsShare(claims.MemoryShare(0), claims.Memory(41), half), "because of a claim in another namespace, whose"},
		"shares of several":          {wantsShare(claims.MemoryShare(0), claims.Memory(41), half, half), "because of 2 claims in other namespaces, whose"},
		"shares, one's own among it": {wantsShare(claims.MemoryShare(0), claims.Memory(41), half, own), "because of claim team/claim-own and a claim in another namespace, whose"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Prepare(tt.s)
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
	other := claims.Record("b", ledger.Prepared, claims.MIG(0, "1g.10gb", 2, 1))
	for range 256 {
		other.Pods = append(other.Pods, ledger.Pod{Name: strings.Repeat("p", 253)})
	}
	_, err := Prepare(situationOf(claims.MIG(0, "1g.10gb", 2, 1)).with(func(s *Situation) { s.Others = []ledger.Record{other} }))
	require.ErrorContains(t, err, " and 253 more)")
	assert.Less(t, len(err.Error()), 1100)
}
