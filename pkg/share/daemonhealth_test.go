package share

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/pkg/claim/ledger"
	"github.com/tranche-dev/tranche/pkg/hardware/mps"
	"github.com/tranche-dev/tranche/test/nodetest"
)

// A problem of a daemon is new once, until it has ended; each change is told to those who wait.
func TestProblemsOfDaemons(t *testing.T) {
	d := NewDaemons(mps.New(mps.Config{}), nil)
	d.SetServes(func(c ledger.ClaimRef, _ ledger.Device) string { return string(c.UID) })
	for i, step := range []struct {
		name, problem  string
		isNew, changes bool
	}{
		{"b", "", false, false},
		{"a", "died", true, true},
		{"a", "died", false, false},
		{"a", "died again", false, true},
		{"b", "died", true, true},
		{"a", "", false, true},
		{"a", "died", true, true},
		{"b", "", false, true},
	} {
		changed := d.WhenChanged()
		assert.Equal(t, step.isNew, d.Take(step.name, step.problem), i)
		select {
		case <-changed:
			assert.True(t, step.changes, i)
		default:
			assert.False(t, step.changes, i)
		}
	}
	assert.Equal(t, []string{"a"}, d.Troubled())
	assert.Equal(t, "died", d.Problem(ledger.ClaimRef{UID: "a"}, &ledger.Device{}))
	assert.Empty(t, d.Problem(ledger.ClaimRef{UID: "b"}, &ledger.Device{}))
	var none *Daemons
	assert.Empty(t, none.Problem(ledger.ClaimRef{UID: "a"}, &ledger.Device{}))
	assert.Nil(t, none.WhenChanged())
}

// A daemon is probed once with each load of the driver, and again some time after a failure, which is
// reported if there are shares.
func TestProbesThatFail(t *testing.T) {
	c := newSharingCase(t, filepath.Join(t.TempDir(), "sharing.json"))
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	d := NewDaemons(mps.New(mps.Config{Dir: filepath.Join(file, "no-folder")}), c.Events)
	ctx := nodetest.Quiet(t.Context())
	probed := func(load string, shared bool) bool {
		before := d.WhyNot()
		assert.False(t, d.Limits(ctx, load, shared))
		return before != d.WhyNot() //nolint:errorlint // whether it is another one
	}
	require.ErrorContains(t, d.WhyNot(), "not probed yet")
	assert.False(t, probed("", true), "without a driver")
	ended, end := context.WithCancel(ctx)
	end()
	assert.False(t, d.Limits(ended, "boot-1", true))
	require.ErrorContains(t, d.WhyNot(), "not probed yet", "the plugin is stopping")
	assert.True(t, probed("boot-1", false))
	require.ErrorContains(t, d.WhyNot(), "try MPS")
	assert.False(t, probed("boot-1", true), "not at once again")
	assert.False(t, d.toldFailure)
	assert.True(t, probed("boot-2", true), "another load")
	nodetest.AwaitEvent(t, c.api, "SharesNotLimited", "because no MPS daemon works on this node: try MPS")
	d.retryAt = time.Now()
	assert.True(t, probed("boot-2", true))
	assert.Equal(t, 4*firstProbeInterval, d.interval)
	assert.Greater(t, time.Until(d.retryAt), firstProbeInterval)

	d.workedUnder = "boot-3"
	assert.True(t, d.Limits(ctx, "boot-3", true))
}
