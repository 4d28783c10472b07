package node

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/pkg/claim"
	"github.com/tranche-dev/tranche/pkg/claim/ledger"
	"github.com/tranche-dev/tranche/test/nodetest"
)

// During a rolling update, what the other plugin writes counts at once.
func TestRecordsOfAnotherPlugin(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "claims")
	mine, _, err := ledger.Open(dir)
	require.NoError(t, err)
	other, _, err := ledger.Open(dir)
	require.NoError(t, err)
	p := &plugin{claims: claim.NewManager(claim.Config{Ledger: mine})}
	require.NoError(t, other.Put(nodetest.PreparedRecord("a", []string{"web"})))
	records := p.ledgerNow(t.Context())
	require.Len(t, records, 1)
	assert.Equal(t, []string{"web"}, records[0].PodNames())
	require.NoError(t, other.Delete(records[0].Claim.UID))
	assert.Empty(t, p.ledgerNow(t.Context()))
}

// Also a plugin that measures nothing tells which GPUs there are.
func TestGPUsWithoutMeasurements(t *testing.T) {
	m := newMachine(t, nodetest.NewAPI())
	m.config.HTTPAddress = freeAddress(t)
	m.start()
	_, body := get(t, "http://"+m.config.HTTPAddress+"/metrics")
	assert.Contains(t, body, `tranche_gpu_info{`)
	assert.NotContains(t, body, `tranche_fb_total_bytes`)
}

func TestGetClaim(t *testing.T) {
	api := nodetest.NewAPI()
	c := nodetest.Allocate(t, api, "a", small0)
	p := &plugin{client: api}
	read, err := p.getClaim(t.Context(), c.Namespace, c.Name)
	require.NoError(t, err)
	assert.Equal(t, c.UID, read.UID)
	gone, err := p.getClaim(t.Context(), c.Namespace, "none")
	require.NoError(t, err)
	assert.Nil(t, gone)
}
