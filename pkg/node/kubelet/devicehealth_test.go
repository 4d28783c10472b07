package kubelet

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"

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
	known.Update([]gpu.GPU{nodetest.GPUAt("0000:01:00.0")}, map[string]gpu.Problem{"0000:02:00.0": {Cause: gpu.CauseLost, Message: "fell off the bus"}}, nil)
	for i, address := range []string{"0000:01:00.0", "0000:02:00.0", "0000:03:00.0", "0000:02:00.0"} { // two claims of the lost GPU
		r := nodetest.PreparedRecord("a", nil, nodetest.HeldDevice(nodetest.GPUAt(address).Placements[0], "", false))
		r.Claim.UID = types.UID("abcd"[i : i+1])
		require.NoError(t, records.Put(r))
	}
	amd := nodetest.AMDGPUAt("0000:05:00.0", "NPS1")
	for i, held := range amd.Placements[:3] {
		r := nodetest.PreparedRecord("b", nil, nodetest.HeldDevice(held, "", false))
		r.Claim.UID = types.UID("xyz"[i : i+1])
		require.NoError(t, records.Put(r))
	}
	known.Update([]gpu.GPU{nodetest.GPUAt("0000:01:00.0"), nodetest.AMDGPUAt("0000:05:00.0", "NPS4")}, map[string]gpu.Problem{"0000:02:00.0": {Cause: gpu.CauseLost, Message: "fell off the bus"}},
		map[string][]gpu.Placement{amd.PCIAddress: amd.Placements[:3]})
	slices := publisher.New(publisher.Config{GPUs: known})
	slices.SetObstacles(t.Context(), map[string][]gpu.Obstacle{amd.PCIAddress: {
		{Placement: amd.Placements[0].Name(), Kind: gpu.ObstacleBusy, Reason: "who holds it has no need of a switch"},
		{Placement: amd.Placements[1].Name(), Kind: gpu.ObstacleMissing, Reason: "no KFD node"},
	}})
	d := New(Config{GPUs: known, Publisher: slices, Claims: claim.NewManager(claim.Config{Ledger: records})})
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

// The health of a device is the worst of its shares; what is wrong is told once.
func TestHealthOfSeveralShares(t *testing.T) {
	is := func(h kubeletplugin.HealthStatus, message string) kubeletplugin.DeviceHealth {
		return kubeletplugin.DeviceHealth{Health: h, Message: message}
	}
	healthy, lost, died := is(kubeletplugin.HealthStatusHealthy, ""), is(kubeletplugin.HealthStatusUnhealthy, "lost"), is(kubeletplugin.HealthStatusUnhealthy, "died")
	for name, tt := range map[string]struct{ a, b, want kubeletplugin.DeviceHealth }{
		"both healthy":      {healthy, healthy, healthy},
		"the first is not":  {lost, healthy, lost},
		"the second is not": {healthy, lost, lost},
		"both for a reason": {lost, lost, lost},
		"each for its own":  {lost, died, is(kubeletplugin.HealthStatusUnhealthy, "lost; died")},
	} {
		assert.Equal(t, tt.want, worse(tt.a, tt.b), name)
	}
}
