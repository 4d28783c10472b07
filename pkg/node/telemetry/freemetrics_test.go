package telemetry

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/tranche-dev/tranche/pkg/claim/ledger"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/test/nodetest"
)

func TestMetricsOfWhatIsFree(t *testing.T) {
	first, second, amd := nodetest.GPUAt("0000:01:00.0"), nodetest.GPUAt("0000:02:00.0"), nodetest.AMDGPUAt("0000:05:00.0", "NPS1")
	released := nodetest.PreparedRecord("left", nil, nodetest.HeldDevice(second.Placements[1], "GPU-2", false))
	released.Released = true
	records := []ledger.Record{
		nodetest.PreparedRecord("a", nil, nodetest.HeldDevice(first.Placements[0], "MIG-1", false)),
		nodetest.PreparedRecord("monitor", nil, nodetest.HeldDevice(second.Placements[1], "GPU-2", true)),
		nodetest.PreparedRecord("c", nil, nodetest.HeldDevice(amd.Placements[0], "", false)),
		released,
	}
	m := NewMetrics(func() []ledger.Record { return records })
	assert.Empty(t, nodetest.Scrape(t, m.Handler(), "tranche_f"), "nothing is published")
	m.OfferedGPUs([]gpu.GPU{first, second, amd})
	assert.Equal(t, []string{
		`tranche_free_memory_bytes{gpu="gpu-0000-01-00-0"} 70`,
		`tranche_free_memory_bytes{gpu="gpu-0000-02-00-0"} 80`,
		`tranche_free_memory_bytes{gpu="gpu-0000-05-00-0"} 40`,
	}, nodetest.Scrape(t, m.Handler(), "tranche_free_memory_bytes{"))
	assert.Equal(t, []string{
		`tranche_allocated_memory_bytes{gpu="gpu-0000-01-00-0"} 10`,
		`tranche_allocated_memory_bytes{gpu="gpu-0000-02-00-0"} 0`,
		`tranche_allocated_memory_bytes{gpu="gpu-0000-05-00-0"} 40`,
	}, nodetest.Scrape(t, m.Handler(), "tranche_allocated_memory_bytes{"))
	assert.Equal(t, []string{
		`tranche_free_compute_units{gpu="gpu-0000-01-00-0"} 116`,
		`tranche_free_compute_units{gpu="gpu-0000-02-00-0"} 132`,
	}, nodetest.Scrape(t, m.Handler(), "tranche_free_compute_units{"), "AMD's GPU does not tell")
	assert.Equal(t, []string{
		`tranche_allocated_compute_units{gpu="gpu-0000-01-00-0"} 16`,
		`tranche_allocated_compute_units{gpu="gpu-0000-02-00-0"} 0`,
	}, nodetest.Scrape(t, m.Handler(), "tranche_allocated_compute_units{"))
	assert.Equal(t, []string{
		`tranche_free_devices{gpu="gpu-0000-01-00-0",profile="",type="gpu"} 0`,
		`tranche_free_devices{gpu="gpu-0000-01-00-0",profile="1g.10gb",type="mig"} 1`,
		`tranche_free_devices{gpu="gpu-0000-02-00-0",profile="",type="gpu"} 1`,
		`tranche_free_devices{gpu="gpu-0000-02-00-0",profile="1g.10gb",type="mig"} 1`,
		`tranche_free_devices{gpu="gpu-0000-05-00-0",profile="",type="gpu"} 0`,
		`tranche_free_devices{gpu="gpu-0000-05-00-0",profile="cpx",type="xcp"} 1`,
		`tranche_free_devices{gpu="gpu-0000-05-00-0",profile="dpx",type="xcp"} 0`,
	}, nodetest.Scrape(t, m.Handler(), "tranche_free_devices{"))
	assert.Equal(t, []string{
		`tranche_fragmentation_ratio{profile="",type="gpu"} 0.5789473684210527`,
		`tranche_fragmentation_ratio{profile="1g.10gb",type="mig"} 0`,
		`tranche_fragmentation_ratio{profile="cpx",type="xcp"} 0`,
		`tranche_fragmentation_ratio{profile="dpx",type="xcp"} 1`,
	}, nodetest.Scrape(t, m.Handler(), "tranche_fragmentation_ratio{"))
	m.OfferedGPUs(nil)
	assert.Empty(t, nodetest.Scrape(t, m.Handler(), "tranche_f"), "withdrawn")
}
