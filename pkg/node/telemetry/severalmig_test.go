package telemetry

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/pkg/claim/ledger"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/profile"
	"github.com/tranche-dev/tranche/test/nodetest"
)

func TestSeveralMIG(t *testing.T) {
	mig := func(start int) gpu.Placement {
		return gpu.Placement{GPU: "0000:01:00.0", Type: gpu.TypeMIG, Profile: "1g.10gb", Start: start}
	}
	share := func(start int) gpu.Placement { return gpu.ShareOf(mig(start), gpu.ByMemory, profile.Default().Sharing) }
	whole := func(address string) gpu.Placement { return gpu.Placement{GPU: address, Type: gpu.TypeGPU} }
	amd := nodetest.AMDGPUAt("0000:05:00.0", "NPS1").Placements
	type requests map[string][]gpu.Placement
	for name, test := range map[string]struct {
		has  requests
		want []string
	}{
		"two of one request":           {requests{"gpus": {mig(0), mig(1)}}, []string{"gpu-0000-01-00-0-mig-1g-10gb-0", "gpu-0000-01-00-0-mig-1g-10gb-1"}},
		"two of a subrequest":          {requests{"gpus/small": {mig(2), mig(3)}}, []string{"gpu-0000-01-00-0-mig-1g-10gb-2", "gpu-0000-01-00-0-mig-1g-10gb-3"}},
		"shares of two partitions":     {requests{"gpus": {share(0), share(1)}}, []string{"gpu-0000-01-00-0-mig-1g-10gb-0", "gpu-0000-01-00-0-mig-1g-10gb-1"}},
		"one for each of two requests": {requests{"a": {mig(0)}, "b": {mig(1)}}, nil},
		"two shares of one partition":  {requests{"gpus": {share(0), share(0)}}, nil},
		"a partition and a whole GPU":  {requests{"gpus": {mig(0), whole("0000:02:00.0")}}, nil},
		"two whole GPUs":               {requests{"gpus": {whole("0000:01:00.0"), whole("0000:02:00.0")}}, nil},
		"two partitions of an AMD GPU": {requests{"gpus": {amd[0], amd[1]}}, nil},
		"nothing":                      {nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			record := nodetest.PreparedRecord("a", nil)
			for request, placements := range test.has {
				for _, p := range placements {
					d := nodetest.HeldDevice(p, "", false)
					d.Request = request
					record.Devices = append(record.Devices, d)
				}
			}
			_, got := severalMIG(record)
			assert.Equal(t, test.want, got)
		})
	}
}

// A pod is warned when its claim is prepared for the first time.
func TestWarnSeveralMIGOnce(t *testing.T) {
	api, e := newEvents(t)
	g := nodetest.GPUAt("0000:01:00.0").Placements[0]
	other := g
	other.Start = 3
	record := nodetest.PreparedRecord("a", []string{"first", "second"}, nodetest.HeldDevice(g, "", false), nodetest.HeldDevice(other, "", false))
	failed := nodetest.PreparedRecord("b", []string{"third"}, record.Devices...)
	preparing := failed.Clone()
	preparing.State = ledger.Preparing
	one := record.Clone()
	one.Pods = one.Pods[:1]

	e.WarnSeveralMIG(t.Context(), record, record)
	e.WarnSeveralMIG(t.Context(), one, record)
	nodetest.AwaitEventOn(t, api, "Pod", "second", "SeveralMIGPartitions", "claim a has 2 MIG partitions (gpu-0000-01-00-0-mig-1g-10gb-2, gpu-0000-01-00-0-mig-1g-10gb-3)")
	e.WarnSeveralMIG(t.Context(), preparing, failed)
	nodetest.AwaitEventOn(t, api, "Pod", "third", "SeveralMIGPartitions", "claim b has 2 MIG partitions")
	list, err := api.EventsV1().Events("team").List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	assert.Len(t, list.Items, 2, "an event for each pod that was not warned")
}
