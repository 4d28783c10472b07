package claim

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/pkg/claim/ledger"
	"github.com/tranche-dev/tranche/pkg/claim/steps"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/test/claims"
)

// addNewer is what a newer plugin has done on the node: a claim with a partition, and
// a record that this version cannot use.
func (p *place) addNewer(uid string, placement gpu.Placement) (ledgerFile string) {
	record := map[string]any{
		"version": 2, "claim": map[string]any{"uid": uid, "namespace": "secret-ns", "name": "secret"}, "state": "Paused",
		"devices": []any{map[string]any{"placement": map[string]any{"gpu": placement.GPU}}},
	}
	data, err := json.Marshal(record)
	require.NoError(p.t, err)
	require.NoError(p.t, os.MkdirAll(p.ledgerDir(), 0o700))
	require.NoError(p.t, os.MkdirAll(p.cdiDir(), 0o755))
	ledgerFile = filepath.Join(p.ledgerDir(), uid+".json")
	require.NoError(p.t, os.WriteFile(ledgerFile, data, 0o600))
	spec := `{"annotations":{"gpu.tranche.dev/record":` + quote(data) + `}}`
	require.NoError(p.t, os.WriteFile(p.cdiFile(uid), []byte(spec), 0o600))
	p.hardware.add(placement, "MIG-newer")
	return ledgerFile
}

// A plugin that cannot use the record of a newer one leaves the claim alone, gives its
// GPU to nobody else, and goes on with the others.
func TestRecordOfANewerVersion(t *testing.T) {
	theirs := claims.MIG(0, "1g.10gb", 5, 1)
	p := newPlace(t, 2).offerShares()
	file := p.addNewer("n", theirs)
	m := p.start()
	require.Empty(t, m.Recover(nil))

	// Its own claim is neither prepared nor released.
	newer := (*ledger.UnusableError)(nil)
	_, _, err := m.Prepare(t.Context(), claims.For("n", theirs))
	require.ErrorAs(t, err, &newer)
	require.ErrorAs(t, m.Unprepare(t.Context(), claims.Ref("n")), &newer)

	// Nothing of its GPU is prepared, and the message does not name the other claim.
	err = prepareOnce(t, m, claims.For("b", claims.MIG(0, "1g.10gb", 0, 1)))
	conflict := (*steps.ConflictError)(nil)
	require.ErrorAs(t, err, &conflict)
	assert.NotContains(t, err.Error(), "secret")
	assert.Contains(t, conflict.Detail(), "secret-ns/secret")
	mustPrepare(t, m, claims.For("c", claims.MIG(1, "1g.10gb", 0, 1)))
	mustRelease(t, m, "c")

	// Its partition is not foreign, its GPU is not changed.
	_, err = m.Foreign(t.Context(), claims.Address(0))
	require.ErrorAs(t, err, &newer)
	require.ErrorAs(t, m.RemoveForeign(t.Context(), claims.PartitionAt(theirs, "MIG-newer")), &newer)
	err = m.Exclusive(t.Context(), []string{claims.Address(0)}, "is being changed", func([]ledger.Record) error { return nil })
	require.ErrorAs(t, err, &newer)

	// What runs for it goes on, and its files stay.
	theirDaemons := map[string]bool{"n": true, gpu.NameOf(claims.Address(0)): true}
	p.shares.daemons = maps.Clone(theirDaemons)
	p.shares.daemons["stray"] = true
	assert.Equal(t, []string{"LedgerRecordNewer", "StrayDaemonStopped"}, reasons(m.Reconcile(t.Context(), noClaims)))
	assert.Equal(t, theirDaemons, p.shares.daemons)
	assert.FileExists(t, p.cdiFile("n"))
	assert.FileExists(t, file)
	assert.Equal(t, []string{theirs.Name()}, p.hardware.names())

	// The newer plugin finds the copy even if the record is lost.
	require.NoError(t, os.Remove(file))
	p.shares.daemons = map[string]bool{}
	m = p.start()
	require.Empty(t, m.Recover(nil))
	assert.Empty(t, m.Reconcile(t.Context(), noClaims))
	assert.FileExists(t, p.cdiFile("n"))
}

// The last share of a partition that this version knows is not the last one if a newer
// version may have prepared more.
func TestShareBesideARecordOfANewerVersion(t *testing.T) {
	p, m := startSharingNode(t, 2)
	mustPrepare(t, m, claims.ShareClaim("a", claims.MIGShare(0), "10Gi"))
	p.addNewer("n", claims.MIG(1, "1g.10gb", 0, 1))
	file := p.addNewer("o", claims.MIG(0, "1g.10gb", 6, 1))
	m = p.start()
	conflict := (*steps.ConflictError)(nil)
	require.ErrorAs(t, m.Unprepare(t.Context(), claims.Ref("a")), &conflict)
	assert.Contains(t, conflict.Detail(), "secret-ns/secret")
	assert.Empty(t, p.hardware.destroyed)

	require.NoError(t, os.Remove(file))
	m = p.start()
	mustRelease(t, m, "a")
	assert.Equal(t, []string{"MIG-1"}, p.hardware.destroyed)
}

// What the record of another claim holds is not known while it cannot be read.
func TestPrepareBesideARecordThatCannotBeRead(t *testing.T) {
	p, m := startNode(t, 2)
	mustPrepare(t, m, claims.For("a", claims.Whole(0)))
	file := filepath.Join(p.ledgerDir(), "a.json")
	require.NoError(t, os.Rename(file, file+".kept"))
	require.NoError(t, os.Symlink(file, file)) // ELOOP, for root too
	m = p.start()
	err := prepareOnce(t, m, claims.For("b", claims.Whole(1)))
	require.ErrorAs(t, err, new(*steps.ConflictError))
	require.ErrorContains(t, err, "cannot be prepared: the record of another claim cannot be read, which may hold a part of the same GPU")
	require.NoError(t, os.Rename(file+".kept", file))
	mustPrepare(t, p.start(), claims.For("b", claims.Whole(1)))
}
