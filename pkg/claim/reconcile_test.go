package claim

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/tranche-dev/tranche/pkg/claim/ledger"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/test/claims"
)

func api(claims ...*resourceapi.ResourceClaim) GetClaim {
	return func(_ context.Context, namespace, name string) (*resourceapi.ResourceClaim, error) {
		for _, c := range claims {
			if c.Namespace == namespace && c.Name == name {
				return c, nil
			}
		}
		return nil, nil
	}
}

func reasons(findings []Finding) []string {
	var all []string
	for _, f := range findings {
		all = append(all, f.Reason)
	}
	return all
}

func TestReconcileReleasesLeftovers(t *testing.T) {
	one := claims.MIG(0, "1g.10gb", 5, 1)
	allocatedTo := func(change func(*resourceapi.ResourceClaim)) *resourceapi.ResourceClaim {
		c := claims.For("a", one)
		change(c)
		return c
	}
	for name, tt := range map[string]struct {
		api  GetClaim
		want []string
	}{
		"still allocated": {api(claims.For("a", one)), nil},
		"gone":            {api(), []string{"LeftoverReleased"}},
		"another of its name": {
			api(allocatedTo(func(c *resourceapi.ResourceClaim) { c.UID = "b" })), []string{"LeftoverReleased"},
		},
		"deallocated": {
			api(allocatedTo(func(c *resourceapi.ResourceClaim) { c.Status.Allocation = nil })), []string{"LeftoverReleased"},
		},
		"allocated on another node": {
			api(allocatedTo(func(c *resourceapi.ResourceClaim) {
				c.Status.Allocation.Devices.Results[0].Pool = "node-b/gpu-0000-01-00-0"
			})), []string{"LeftoverReleased"},
		},
		"API server away": {
			func(context.Context, string, string) (*resourceapi.ResourceClaim, error) { return nil, errScripted }, nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			p, m := startNode(t, 1)
			mustPrepare(t, m, claims.For("a", one))
			findings := m.Reconcile(t.Context(), tt.api)
			assert.Equal(t, tt.want, reasons(findings))
			if tt.want == nil {
				assert.Equal(t, []string{one.Name()}, p.hardware.names())
				return
			}
			require.NoError(t, findings[0].Err)
			assert.Contains(t, findings[0].Message, one.Name())
			p.nothingHeld(m)
		})
	}
}

// Between the look at the API and the release, the claim is allocated again and
// prepared: that is not what should be released.
func TestReconcileSparesNewAllocation(t *testing.T) {
	before, now := claims.MIG(0, "1g.10gb", 5, 1), claims.MIG(0, "3g.40gb", 0, 4)
	p, m := startNode(t, 1)
	mustPrepare(t, m, claims.For("a", before))
	m.Reconcile(t.Context(), func(ctx context.Context, _, _ string) (*resourceapi.ResourceClaim, error) {
		_, _, err := m.Prepare(ctx, claims.For("a", now))
		return nil, err
	})
	assert.Equal(t, []string{now.Name()}, p.hardware.names())
	assert.FileExists(t, p.cdiFile("a"))
}

func TestForeign(t *testing.T) {
	one := claims.MIG(0, "1g.10gb", 5, 1)
	p := newPlace(t, 2)
	p.hardware.add(one, "MIG-x")
	m := p.start()
	foreign := foreignOn(t, m, claims.Address(0))
	require.Len(t, foreign, 1)
	assert.True(t, foreign[0].Is(one))
	assert.Empty(t, foreignOn(t, m, claims.Address(1)))

	// A record of an earlier boot explains nothing, one of this boot does.
	old := claims.Record("a", ledger.Prepared, one)
	old.Devices[0].LoadID, old.Devices[0].UUID = "boot-0", "MIG-x"
	require.NoError(t, m.Ledger.Put(old))
	assert.Len(t, foreignOn(t, m, claims.Address(0)), 1)
	old.Devices[0].LoadID = p.hardware.loadID
	require.NoError(t, m.Ledger.Put(old))
	assert.Empty(t, foreignOn(t, m, claims.Address(0)))

	both := claims.For("b", claims.MIG(0, "3g.40gb", 0, 4), claims.MIG(1, "3g.40gb", 0, 4))
	mustPrepare(t, m, both)
	for n := range 2 {
		_, missing, err := m.Compare(t.Context(), claims.Address(n))
		require.NoError(t, err)
		assert.Empty(t, missing, "devices of another GPU are not looked for here")
	}

	p.hardware.onLive = func(string) error { return errScripted }
	_, err := m.Foreign(t.Context(), claims.Address(0))
	require.ErrorIs(t, err, errScripted)
}

func TestRemoveForeign(t *testing.T) {
	one := claims.MIG(0, "1g.10gb", 5, 1)
	p := newPlace(t, 1)
	p.hardware.add(one, "MIG-x")
	m := p.start()
	foreign := foreignOn(t, m, claims.Address(0))
	require.Len(t, foreign, 1)

	p.hardware.onDestroy = func(context.Context, gpu.Placement) error { return gpu.ErrInUse }
	require.ErrorIs(t, m.RemoveForeign(t.Context(), foreign[0]), gpu.ErrInUse, "what somebody uses stays")
	p.hardware.onDestroy = nil
	assert.Equal(t, []string{one.Name()}, p.hardware.names())
	require.NoError(t, m.RemoveForeign(t.Context(), foreign[0]))
	assert.Empty(t, p.hardware.names())

	// What has become ours since the look is not touched.
	mustPrepare(t, m, claims.For("a", one))
	require.NoError(t, m.RemoveForeign(t.Context(), foreign[0]))
	assert.Equal(t, []string{one.Name()}, p.hardware.names())
}

// A CDI file that cannot be read now may have the only copy of a record.
func TestReconcileKeepsFilesThatCannotBeRead(t *testing.T) {
	p, m := startNode(t, 1)
	require.NoError(t, os.Symlink(p.cdiFile("a"), p.cdiFile("a"))) // ELOOP, for root too
	assert.Empty(t, m.Reconcile(t.Context(), noClaims))
	_, err := os.Lstat(p.cdiFile("a"))
	require.NoError(t, err)
}

// While the GPUs of an orphan file are busy, its claim may be being prepared again.
func TestReconcileLeavesOrphanFilesOfBusyGPUs(t *testing.T) {
	p, m := startNode(t, 1)
	mustPrepare(t, m, claims.For("a", claims.Whole(0)))
	removed, err := m.removeOrphanFile(t.Context(), "a", nil)
	require.NoError(t, err)
	assert.False(t, removed, "the claim was prepared again meanwhile")
	require.NoError(t, m.Ledger.Delete("a"))
	err = m.Exclusive(t.Context(), []string{claims.Address(0)}, "is being changed", func([]ledger.Record) error {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		findings := m.removeOrphanFiles(ctx)
		require.Len(t, findings, 1)
		require.ErrorIs(t, findings[0].Err, context.DeadlineExceeded)
		return nil
	})
	require.NoError(t, err)
	assert.FileExists(t, p.cdiFile("a"))
	m.Reconcile(t.Context(), noClaims)
	assert.NoFileExists(t, p.cdiFile("a"))
}

func TestReconcileRemovesOrphanFiles(t *testing.T) {
	p, m := startNode(t, 1)
	require.NoError(t, os.WriteFile(p.cdiFile("x"), []byte(`{}`), 0o600))
	mustPrepare(t, m, claims.For("a", claims.MIG(0, "1g.10gb", 5, 1)))
	findings := m.Reconcile(t.Context(), api(claims.For("a", claims.MIG(0, "1g.10gb", 5, 1))))
	assert.Equal(t, []string{"OrphanFileRemoved"}, reasons(findings))
	assert.NoFileExists(t, p.cdiFile("x"))
	assert.FileExists(t, p.cdiFile("a"))

	require.NoError(t, os.RemoveAll(p.cdiDir()))
	require.NoError(t, os.WriteFile(p.cdiDir(), nil, 0o600))
	assert.Equal(t, []string{"PreparedAgain", "CDIFilesUnreadable"}, reasons(m.Reconcile(t.Context(), api(claims.For("a", claims.MIG(0, "1g.10gb", 5, 1))))))
}

// A broken ledger file costs nothing: the CDI file has a copy of the record.
func TestRecover(t *testing.T) {
	one := claims.MIG(0, "1g.10gb", 5, 1)
	for name, spoil := range map[string]func(t *testing.T, file string){
		"broken":                  func(t *testing.T, file string) { require.NoError(t, os.WriteFile(file, []byte(`{"version":`), 0o600)) },
		"empty, as after a crash": func(t *testing.T, file string) { require.NoError(t, os.Truncate(file, 0)) },
		"deleted":                 func(t *testing.T, file string) { require.NoError(t, os.Remove(file)) },
		"set aside by a run that ended at once": func(t *testing.T, file string) {
			require.NoError(t, os.Truncate(file, 0))
			_, broken, err := ledger.Open(filepath.Dir(file))
			require.NoError(t, err)
			require.Len(t, broken, 1)
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlace(t, 1)
			mustPrepare(t, p.start(), claims.For("a", one))
			spoil(t, filepath.Join(p.ledgerDir(), "a.json"))

			m, broken := p.startBroken()
			findings := m.Recover(broken)
			require.Len(t, findings, 1)
			require.NoError(t, findings[0].Err)
			assert.Contains(t, findings[0].Message, "claim a")
			assert.Contains(t, findings[0].Message, "rebuilt from the claim's CDI file")
			rebuilt, _ := m.Ledger.Get("a")
			assert.Equal(t, ledger.Prepared, rebuilt.State)
			r := mustPrepare(t, m, claims.For("a", one))
			assert.Equal(t, "MIG-1", r.Devices[0].UUID, "the same partition")
			mustRelease(t, m, "a")
			p.nothingHeld(m)
		})
	}
}

func TestRecoverWithoutCopy(t *testing.T) {
	one := claims.MIG(0, "1g.10gb", 5, 1)
	for name, spoil := range map[string]func(*place) error{
		"no CDI file":     func(p *place) error { return os.Remove(p.cdiFile("a")) },
		"broken CDI file": func(p *place) error { return os.WriteFile(p.cdiFile("a"), []byte(`{`), 0o600) },
		"no copy in it":   func(p *place) error { return os.WriteFile(p.cdiFile("a"), []byte(`{}`), 0o600) },
		"broken copy in it": func(p *place) error {
			return os.WriteFile(p.cdiFile("a"), []byte(`{"annotations":{"gpu.tranche.dev/record":"{}"}}`), 0o600)
		},
		"another claim's copy": func(p *place) error {
			data, err := ledger.Encode(claims.Record("b", ledger.Prepared, one))
			return errors.Join(err, os.WriteFile(p.cdiFile("a"), []byte(`{"annotations":{"gpu.tranche.dev/record":`+quote(data)+`}}`), 0o600))
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlace(t, 1)
			mustPrepare(t, p.start(), claims.For("a", one))
			require.NoError(t, os.Truncate(filepath.Join(p.ledgerDir(), "a.json"), 0))
			require.NoError(t, spoil(p))

			m, broken := p.startBroken()
			findings := m.Recover(broken)
			require.Len(t, findings, 1)
			require.Error(t, findings[0].Err)
			assert.Contains(t, findings[0].Message, "counts as foreign")
			assert.Empty(t, m.Ledger.List())
			// Never guessed, never destroyed.
			m.Reconcile(t.Context(), noClaims)
			assert.Len(t, foreignOn(t, m, claims.Address(0)), 1)
			assert.Equal(t, []string{one.Name()}, p.hardware.names())
		})
	}
}

// While the ledger cannot be read, nothing is released, and no file is taken for an orphan.
func TestReconcileWithoutTheLedger(t *testing.T) {
	p, m := startNode(t, 1)
	mustPrepare(t, m, claims.For("a", claims.MIG(0, "1g.10gb", 5, 1)))
	require.NoError(t, os.WriteFile(p.cdiFile("x"), []byte(`{}`), 0o600))
	before := p.hardware.names()
	require.NoError(t, os.Rename(p.ledgerDir(), p.ledgerDir()+".away"))
	m.Ledger.ReadAgain()
	findings := m.Reconcile(t.Context(), noClaims)
	assert.Equal(t, []string{"LedgerUnreadable", "LedgerUnreadable"}, reasons(findings))
	for _, f := range findings {
		require.ErrorIs(t, f.Err, os.ErrNotExist)
	}
	_, err := m.Foreign(t.Context(), claims.Address(0))
	require.ErrorIs(t, err, os.ErrNotExist)
	assert.Equal(t, before, p.hardware.names())
	assert.FileExists(t, p.cdiFile("a"))
	assert.FileExists(t, p.cdiFile("x"))

	require.NoError(t, os.Rename(p.ledgerDir()+".away", p.ledgerDir()))
	assert.Equal(t, []string{"LeftoverReleased", "OrphanFileRemoved"}, reasons(m.Reconcile(t.Context(), noClaims)), "the locks are free again")
	p.nothingHeld(m)
}
