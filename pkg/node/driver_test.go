package node

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	drahealth "k8s.io/kubelet/pkg/apis/dra-health/v1"

	"github.com/tranche-dev/tranche/pkg/claim"
	"github.com/tranche-dev/tranche/pkg/claim/ledger"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/node/inventory"
	"github.com/tranche-dev/tranche/pkg/node/publisher"
	"github.com/tranche-dev/tranche/test/nodetest"
)

func TestHealth(t *testing.T) {
	records, _, err := ledger.Open(t.TempDir())
	require.NoError(t, err)
	known := &inventory.GPUs{}
	known.Update([]gpu.GPU{nodetest.GPUAt("0000:01:00.0"), nodetest.GPUAt("0000:02:00.0")}, nil, nil)
	known.Update([]gpu.GPU{nodetest.GPUAt("0000:01:00.0")}, map[string]string{"0000:02:00.0": "fell off the bus"}, nil)
	for i, address := range []string{"0000:01:00.0", "0000:02:00.0", "0000:03:00.0"} {
		r := nodetest.PreparedRecord("a", nil, nodetest.HeldDevice(nodetest.GPUAt(address).Placements[0], "", false))
		r.Claim.UID = types.UID("abc"[i : i+1])
		require.NoError(t, records.Put(r))
	}
	amd := nodetest.AMDGPUAt("0000:05:00.0", "NPS1")
	for i, held := range amd.Placements[:3] {
		r := nodetest.PreparedRecord("b", nil, nodetest.HeldDevice(held, "", false))
		r.Claim.UID = types.UID("xyz"[i : i+1])
		require.NoError(t, records.Put(r))
	}
	known.Update([]gpu.GPU{nodetest.GPUAt("0000:01:00.0"), nodetest.AMDGPUAt("0000:05:00.0", "NPS4")}, map[string]string{"0000:02:00.0": "fell off the bus"},
		map[string][]gpu.Placement{amd.PCIAddress: amd.Placements[:3]})
	slices := publisher.New(publisher.Config{GPUs: known})
	slices.SetObstacles(t.Context(), map[string][]gpu.Obstacle{amd.PCIAddress: {
		{Placement: amd.Placements[0].Name(), Kind: gpu.ObstacleBusy, Reason: "who holds it has no need of a switch"},
		{Placement: amd.Placements[1].Name(), Kind: gpu.ObstacleMissing, Reason: "no KFD node"},
	}})
	d := &driver{gpus: known, publisher: slices, claims: claim.NewManager(claim.Config{Ledger: records})}
	var got []string
	for _, h := range d.health().Devices {
		got = append(got, h.DeviceName+": "+string(h.Health)+" "+h.Message)
	}
	assert.Equal(t, []string{
		"gpu-0000-01-00-0-mig-1g-10gb-2: Healthy ",
		"gpu-0000-02-00-0-mig-1g-10gb-2: Unhealthy GPU gpu-0000-02-00-0: fell off the bus",
		"gpu-0000-03-00-0-mig-1g-10gb-2: Unknown GPU gpu-0000-03-00-0 has not been found since the plugin started",
		"gpu-0000-05-00-0-cpx-0: Healthy ",
		"gpu-0000-05-00-0-cpx-1: Unhealthy no KFD node",
		"gpu-0000-05-00-0-dpx-0: Unhealthy the GPU's memory mode is now NPS4, in which it does not have it",
	}, got)
}

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
	p := &plugin{claims: claim.NewManager(claim.Config{Ledger: mine})}
	require.NoError(t, other.Put(nodetest.PreparedRecord("a", []string{"web"})))
	records := p.ledgerNow(t.Context())
	require.Len(t, records, 1)
	assert.Equal(t, []string{"web"}, records[0].PodNames())
	require.NoError(t, other.Delete(records[0].Claim.UID))
	assert.Empty(t, p.ledgerNow(t.Context()))
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
