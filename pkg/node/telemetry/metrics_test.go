package telemetry

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/pkg/claim/ledger"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/profile"
	"github.com/tranche-dev/tranche/pkg/publish"
	"github.com/tranche-dev/tranche/test/nodetest"
)

func TestMetricsOfClaims(t *testing.T) {
	one, g := nodetest.GPUAt("0000:01:00.0").Placements[0], nodetest.GPUAt("0000:02:00.0").Placements[1]
	amd := nodetest.AMDGPUAt("0000:05:00.0", "NPS1").Placements
	unfinished := nodetest.PreparedRecord("unfinished", nil, nodetest.HeldDevice(g, "", false))
	unfinished.State = ledger.Preparing
	records := []ledger.Record{
		// Two requests with one device, and a pod that replaces one of its name.
		nodetest.PreparedRecord("a", []string{"web-0", "web-0", "web-1"}, nodetest.HeldDevice(one, "MIG-1", false), nodetest.HeldDevice(one, "MIG-1", true)),
		nodetest.PreparedRecord("b", nil, nodetest.HeldDevice(g, "GPU-2", false)),
		nodetest.PreparedRecord("c", nil, nodetest.HeldDevice(amd[1], "", false)),
		nodetest.PreparedRecord("d", nil, nodetest.HeldDevice(amd[3], "e3a9", false)),
		unfinished,
	}
	m := NewMetrics("node-a", func() []ledger.Record { return records })
	assert.Equal(t, []string{
		`tranche_claim_info{claim="a",container="",device="gpu-0000-01-00-0-mig-1g-10gb-2",gpu="gpu-0000-01-00-0",namespace="team",pod="web-0",profile="1g.10gb",type="mig",uuid="MIG-1"} 1`,
		`tranche_claim_info{claim="a",container="",device="gpu-0000-01-00-0-mig-1g-10gb-2",gpu="gpu-0000-01-00-0",namespace="team",pod="web-1",profile="1g.10gb",type="mig",uuid="MIG-1"} 1`,
		`tranche_claim_info{claim="b",container="",device="gpu-0000-02-00-0",gpu="gpu-0000-02-00-0",namespace="team",pod="",profile="",type="gpu",uuid="GPU-2"} 1`,
		`tranche_claim_info{claim="c",container="",device="gpu-0000-05-00-0-cpx-1",gpu="gpu-0000-05-00-0",namespace="team",pod="",profile="cpx",type="xcp",uuid=""} 1`,
		`tranche_claim_info{claim="d",container="",device="gpu-0000-05-00-0",gpu="gpu-0000-05-00-0",namespace="team",pod="",profile="",type="gpu",uuid="e3a9"} 1`,
	}, scraped(t, m, "tranche_claim_info{"))
	assert.Equal(t, []string{
		`tranche_prepared_devices{profile="",type="gpu"} 2`,
		`tranche_prepared_devices{profile="1g.10gb",type="mig"} 1`,
		`tranche_prepared_devices{profile="cpx",type="xcp"} 1`,
	}, scraped(t, m, "tranche_prepared_devices{"))
	records = nil
	assert.Empty(t, scraped(t, m, "tranche_claim_info{"), "released claims are gone")
}

func TestMetricsOfPublishing(t *testing.T) {
	m := NewMetrics("node-a", func() []ledger.Record { return nil })
	for range 2 {
		all, errs := publish.Slices([]publish.GPU{{GPU: nodetest.GPUAt("0000:01:00.0")}, {GPU: nodetest.GPUAt("0000:02:00.0"), Withheld: true}})
		require.Empty(t, errs)
		m.PublishedDevices(all)
	}
	assert.Equal(t, []string{
		`tranche_published_devices{profile="",type="gpu"} 1`,
		`tranche_published_devices{profile="1g.10gb",type="mig"} 1`,
	}, scraped(t, m, "tranche_published_devices{"))
}

// scraped returns the samples without the label node, which each must have.
func scraped(t *testing.T, m *Metrics, prefix string) (lines []string) {
	t.Helper()
	const node = `node="node-a"`
	for _, line := range nodetest.Scrape(t, m.Handler(), prefix) {
		require.Contains(t, line, node)
		lines = append(lines, strings.NewReplacer("{"+node+"}", "", "{"+node+",", "{", ","+node, "").Replace(line))
	}
	return lines
}

// Dashboards and alerts rely on these names and labels.
func TestMetricNamesAreStable(t *testing.T) {
	m := NewMetrics("node-a", func() []ledger.Record { return nil })
	m.Phase("prepare", "create", time.Millisecond, errors.New("x"))
	m.Operation("unprepare", time.Now(), nil)
	m.Operation("prepare", time.Now(), errors.New("x"))
	m.Finding("ForeignPartition", nil)
	var counts []string
	for _, line := range scraped(t, m, "tranche_") {
		if !strings.Contains(line, "_bucket") && !strings.Contains(line, "_sum") {
			counts = append(counts, line)
		}
	}
	assert.Equal(t, []string{
		`tranche_claim_operation_duration_seconds_count{operation="prepare",result="Failed"} 1`,
		`tranche_claim_operation_duration_seconds_count{operation="unprepare",result="Succeeded"} 1`,
		`tranche_claim_operation_phase_duration_seconds_count{operation="prepare",phase="create",result="Failed"} 1`,
		`tranche_publish_errors_total 0`,
		`tranche_reconcile_findings_total{reason="ForeignPartition",result="Succeeded"} 1`,
	}, counts)
}

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
	m := NewMetrics("node-a", func() []ledger.Record { return records })
	assert.Empty(t, scraped(t, m, "tranche_f"), "nothing is published")
	m.OfferedGPUs([]gpu.GPU{first, second, amd})
	assert.Equal(t, []string{
		`tranche_free_memory_bytes{gpu="gpu-0000-01-00-0"} 70`,
		`tranche_free_memory_bytes{gpu="gpu-0000-02-00-0"} 80`,
		`tranche_free_memory_bytes{gpu="gpu-0000-05-00-0"} 40`,
	}, scraped(t, m, "tranche_free_memory_bytes{"))
	assert.Equal(t, []string{
		`tranche_allocated_memory_bytes{gpu="gpu-0000-01-00-0"} 10`,
		`tranche_allocated_memory_bytes{gpu="gpu-0000-02-00-0"} 0`,
		`tranche_allocated_memory_bytes{gpu="gpu-0000-05-00-0"} 40`,
	}, scraped(t, m, "tranche_allocated_memory_bytes{"))
	assert.Equal(t, []string{
		`tranche_free_compute_units{gpu="gpu-0000-01-00-0"} 116`,
		`tranche_free_compute_units{gpu="gpu-0000-02-00-0"} 132`,
	}, scraped(t, m, "tranche_free_compute_units{"), "AMD's GPU does not tell")
	assert.Equal(t, []string{
		`tranche_allocated_compute_units{gpu="gpu-0000-01-00-0"} 16`,
		`tranche_allocated_compute_units{gpu="gpu-0000-02-00-0"} 0`,
	}, scraped(t, m, "tranche_allocated_compute_units{"))
	assert.Equal(t, []string{
		`tranche_free_devices{gpu="gpu-0000-01-00-0",profile="",type="gpu"} 0`,
		`tranche_free_devices{gpu="gpu-0000-01-00-0",profile="1g.10gb",type="mig"} 1`,
		`tranche_free_devices{gpu="gpu-0000-02-00-0",profile="",type="gpu"} 1`,
		`tranche_free_devices{gpu="gpu-0000-02-00-0",profile="1g.10gb",type="mig"} 1`,
		`tranche_free_devices{gpu="gpu-0000-05-00-0",profile="",type="gpu"} 0`,
		`tranche_free_devices{gpu="gpu-0000-05-00-0",profile="cpx",type="xcp"} 1`,
		`tranche_free_devices{gpu="gpu-0000-05-00-0",profile="dpx",type="xcp"} 0`,
	}, scraped(t, m, "tranche_free_devices{"))
	assert.Equal(t, []string{
		`tranche_fragmentation_ratio{profile="",type="gpu"} 0.5789473684210527`,
		`tranche_fragmentation_ratio{profile="1g.10gb",type="mig"} 0`,
		`tranche_fragmentation_ratio{profile="cpx",type="xcp"} 0`,
		`tranche_fragmentation_ratio{profile="dpx",type="xcp"} 1`,
	}, scraped(t, m, "tranche_fragmentation_ratio{"))
	m.OfferedGPUs(nil)
	assert.Empty(t, scraped(t, m, "tranche_f"), "withdrawn")
}

// A GPU that does not work, and why none of its devices can be allocated.
func TestMetricsOfHealth(t *testing.T) {
	m := NewMetrics("node-a", func() []ledger.Record { return nil })
	m.Register(HealthCollector(func() []Health {
		return []Health{{GPU: "gpu-1"}, {GPU: "gpu-2", Cause: gpu.CauseLost, Unavailable: []string{Withheld, "unhealthy"}}}
	}))
	assert.Equal(t, []string{
		`tranche_gpu_healthy{cause="",gpu="gpu-1"} 1`,
		`tranche_gpu_healthy{cause="lost",gpu="gpu-2"} 0`,
		`tranche_gpu_unavailable{gpu="gpu-2",reason="unhealthy"} 1`,
		`tranche_gpu_unavailable{gpu="gpu-2",reason="withheld"} 1`,
	}, scraped(t, m, "tranche_gpu_"))
}

// Two shares that a claim has of one device are two samples.
func TestMetricsOfShares(t *testing.T) {
	limited := profile.Default().Sharing
	limited.Limits = true
	g := nodetest.GPUAt("0000:01:00.0").Placements[1]
	half, some := nodetest.HeldDevice(gpu.ShareOf(g, gpu.ByFraction, limited), "GPU-1", false), nodetest.HeldDevice(gpu.ShareOf(g, gpu.ByMemory, profile.Default().Sharing), "GPU-1", false)
	half.ShareID, half.Amount, half.MemoryLimit = "s1", &gpu.Amount{Fraction: 500, Memory: 40}, 60
	some.ShareID, some.Amount = "s2", &gpu.Amount{Memory: 20}
	again := some
	again.ShareID = "s3"
	m := NewMetrics("node-a", func() []ledger.Record {
		return []ledger.Record{nodetest.PreparedRecord("a", []string{"web"}, half, some, again)}
	})
	const fraction, memory = `claim="a",container="",device="gpu-0000-01-00-0-fraction-share"`, `claim="a",container="",device="gpu-0000-01-00-0-memory-share"`
	assert.Equal(t, []string{
		`tranche_share_allocated_memory_bytes{` + fraction + `,namespace="team",pod="",share_id="s1"} 40`,
		`tranche_share_allocated_memory_bytes{` + memory + `,namespace="team",pod="",share_id="s2"} 20`,
		`tranche_share_allocated_memory_bytes{` + memory + `,namespace="team",pod="",share_id="s3"} 20`,
		`tranche_share_allocated_ratio{` + fraction + `,namespace="team",pod="",share_id="s1"} 0.5`,
		`tranche_share_info{` + fraction + `,isolation="cooperative",namespace="team",pod="",share_id="s1",share_unit="Fraction",sharing_strategy="TimeSlicing"} 1`,
		`tranche_share_info{` + memory + `,isolation="none",namespace="team",pod="",share_id="s2",share_unit="Memory",sharing_strategy="TimeSlicing"} 1`,
		`tranche_share_info{` + memory + `,isolation="none",namespace="team",pod="",share_id="s3",share_unit="Memory",sharing_strategy="TimeSlicing"} 1`,
		`tranche_share_memory_limit_bytes{` + fraction + `,namespace="team",pod="",share_id="s1"} 60`,
	}, scraped(t, m, "tranche_share_"))
}
