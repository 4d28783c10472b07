package inventory

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/pkg/durable"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/test/filled"
	"github.com/tranche-dev/tranche/test/golden"
	"github.com/tranche-dev/tranche/test/nodetest"
)

func TestTroublesSurviveARestart(t *testing.T) {
	ctx := nodetest.Quiet(t.Context())
	path := filepath.Join(t.TempDir(), "health.json")
	first, err := OpenTroubles(path)
	require.NoError(t, err)
	assert.Empty(t, first.List())
	bad := gpu.HealthEvent{PCIAddress: "0000:01:00.0", XID: 79, Fatal: true, Message: "fell off the bus", LoadID: "boot/1", Energy: 7}
	first.Add(ctx, bad)

	second, err := OpenTroubles(path)
	require.NoError(t, err)
	assert.Equal(t, []gpu.HealthEvent{bad}, second.List())

	// The end of an event does not end the same error when it has come again.
	again := bad
	again.Energy = 9
	second.Add(ctx, again)
	second.Over(ctx, bad)
	assert.Equal(t, []gpu.HealthEvent{again}, second.List())
	second.Over(ctx, again)
	third, err := OpenTroubles(path)
	require.NoError(t, err)
	assert.Empty(t, third.List())
}

// A file that cannot be read now is read later, and not replaced before.
func TestTroublesThatCannotBeReadYet(t *testing.T) {
	ctx := nodetest.Quiet(t.Context())
	path := filepath.Join(t.TempDir(), "health.json")
	earlier, err := OpenTroubles(path)
	require.NoError(t, err)
	before, now := gpu.HealthEvent{PCIAddress: "0000:01:00.0", Message: "before"}, gpu.HealthEvent{PCIAddress: "0000:02:00.0", Message: "now"}
	earlier.Add(ctx, before)
	require.NoError(t, os.Rename(path, path+".away"))
	require.NoError(t, os.Mkdir(path, 0o700)) // reading it fails, also for root
	troubles, err := OpenTroubles(path)
	require.ErrorContains(t, err, "read which GPUs were unhealthy from "+path)
	troubles.Add(ctx, now)
	assert.Equal(t, []gpu.HealthEvent{now}, troubles.List())
	require.DirExists(t, path)

	require.NoError(t, os.Remove(path))
	require.NoError(t, os.Rename(path+".away", path))
	assert.Equal(t, []gpu.HealthEvent{before, now}, troubles.List())
	again, err := OpenTroubles(path)
	require.NoError(t, err)
	assert.Equal(t, []gpu.HealthEvent{before, now}, again.List())
}

func TestTroublesThatCannotBeRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "health.json")
	require.NoError(t, os.WriteFile(path, []byte("{"), 0o600))
	troubles, err := OpenTroubles(path)
	require.ErrorContains(t, err, "read which GPUs were unhealthy from "+path)
	assert.Empty(t, troubles.List(), "the plugin goes on")
	troubles.Add(nodetest.Quiet(t.Context()), gpu.HealthEvent{PCIAddress: "0000:01:00.0", Message: "x"})
	troubles, err = OpenTroubles(path)
	require.NoError(t, err)
	assert.Len(t, troubles.List(), 1)
}

// Errors of one GPU that end in different ways are all kept.
func TestTroublesOfOneGPUEndOneByOne(t *testing.T) {
	ctx := nodetest.Quiet(t.Context())
	path := filepath.Join(t.TempDir(), "health.json")
	troubles, err := OpenTroubles(path)
	require.NoError(t, err)
	dead := gpu.HealthEvent{PCIAddress: "0000:01:00.0", XID: 119, Cause: "xid-119", Fatal: true, Message: "XID 119"}
	link := gpu.HealthEvent{PCIAddress: "0000:01:00.0", XID: 74, Cause: "xid-74", Fatal: true, Message: "XID 74"}
	other := gpu.HealthEvent{PCIAddress: "0000:02:00.0", XID: 79, Fatal: true, Message: "XID 79"}
	for _, e := range []gpu.HealthEvent{dead, other, link} {
		troubles.Add(ctx, e)
	}
	assert.Equal(t, gpu.Problem{Cause: "xid-119", Message: "XID 119; XID 74"}, troubles.Problem("0000:01:00.0"))
	troubles.Over(ctx, link)
	assert.Equal(t, gpu.Problem{Cause: "xid-119", Message: "XID 119"}, troubles.Problem("0000:01:00.0"))
	troubles, err = OpenTroubles(path)
	require.NoError(t, err)
	assert.Equal(t, []gpu.HealthEvent{dead, other}, troubles.List())
}

// Every key of the file, as it stays.
func TestTroublesFormat(t *testing.T) {
	var e trouble
	filled.Value(&e)
	e.unknown = durable.Unknown{"later": json.RawMessage(`{"a":1}`)}
	path := filepath.Join(t.TempDir(), "health.json")
	troubles, err := OpenTroubles(path)
	require.NoError(t, err)
	troubles.events = []trouble{e}
	other := gpu.HealthEvent{PCIAddress: "0000:02:00.0", Message: "lost"}
	troubles.Add(t.Context(), other)
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	golden.JSON(t, "testdata/health.json", data)
	again, err := OpenTroubles(path)
	require.NoError(t, err)
	assert.Equal(t, troubles.events, again.events)
	again.Over(t.Context(), other)
	assert.Equal(t, []trouble{e}, again.events, "with the keys of a newer version")
}
