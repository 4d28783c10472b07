package node

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	drahealth "k8s.io/kubelet/pkg/apis/dra-health/v1"

	"github.com/tranche-dev/tranche/pkg/claim"
	"github.com/tranche-dev/tranche/pkg/claim/ledger"
	"github.com/tranche-dev/tranche/test/nodetest"
)

// The kubelet reads the health of the devices that pods hold from a stream.
func TestHealthStream(t *testing.T) {
	m := newMachine(t, nodetest.NewAPI())
	k, stop := m.start()
	assert.Contains(t, k.services, "v1.DRAResourceHealth")
	k.mustPrepare(nodetest.Allocate(t, m.api, "a", small0))
	stream, err := drahealth.NewDRAResourceHealthClient(k.conn).NodeWatchResources(t.Context(), &drahealth.NodeWatchResourcesRequest{})
	require.NoError(t, err)
	answer, err := stream.Recv()
	require.NoError(t, err)
	require.Len(t, answer.Devices, 1)
	assert.Equal(t, small0, answer.Devices[0].Device.DeviceName)
	assert.Equal(t, "node-a", answer.Devices[0].Device.PoolName)
	assert.Equal(t, drahealth.HealthStatus_HEALTHY, answer.Devices[0].Health)
	stop()
	_, err = stream.Recv()
	require.Error(t, err, "the stream ends with the plugin")
}

// A batch is prepared at once; one bad claim does not spoil the others.
func TestBatchOfClaims(t *testing.T) {
	m := newMachine(t, nodetest.NewAPI())
	k, _ := m.start()
	good, bad, other := nodetest.Allocate(t, m.api, "good", small0), nodetest.Allocate(t, m.api, "bad", card0+"-mig-9g-90gb-0"), nodetest.Allocate(t, m.api, "other", card1)
	answers := k.prepare(good, bad, other)
	assert.Empty(t, answers["good"].Error)
	assert.Contains(t, answers["bad"].Error, "does not exist")
	assert.Empty(t, answers["other"].Error)
	require.Empty(t, k.unprepare(good))
	require.Empty(t, k.unprepare(bad), "never prepared")
	require.Empty(t, k.unprepare(other))
	m.nothingHeld()
}

// During a rolling update, what the other plugin writes counts at once.
func TestRecordsOfAnotherPlugin(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "claims")
	mine, _, err := ledger.Open(dir)
	require.NoError(t, err)
	other, _, err := ledger.Open(dir)
	require.NoError(t, err)
	c := &claims{base: &base{records: mine}, Manager: claim.NewManager(claim.Config{Ledger: mine})}
	require.NoError(t, other.Put(nodetest.PreparedRecord("a", []string{"web"})))
	records := c.recordsNow(t.Context())
	require.Len(t, records, 1)
	assert.Equal(t, []string{"web"}, records[0].PodNames())
	require.NoError(t, other.Delete(records[0].Claim.UID))
	assert.Empty(t, c.recordsNow(t.Context()))
}

func TestGetClaim(t *testing.T) {
	api := nodetest.NewAPI()
	c := nodetest.Allocate(t, api, "a", small0)
	held := &claims{base: &base{client: api}}
	read, err := held.getClaim(t.Context(), c.Namespace, c.Name)
	require.NoError(t, err)
	assert.Equal(t, c.UID, read.UID)
	gone, err := held.getClaim(t.Context(), c.Namespace, "none")
	require.NoError(t, err)
	assert.Nil(t, gone)
}
