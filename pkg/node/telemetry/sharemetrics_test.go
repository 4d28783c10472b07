package telemetry

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/tranche-dev/tranche/pkg/claim/ledger"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/profile"
	"github.com/tranche-dev/tranche/test/nodetest"
)

// Two shares that a claim has of one device are two samples.
func TestMetricsOfShares(t *testing.T) {
	limited := profile.Default().Sharing
	limited.Limits = true
	g := nodetest.GPUAt("0000:01:00.0").Placements[1]
	half, some := nodetest.HeldDevice(gpu.ShareOf(g, gpu.ByFraction, limited), "GPU-1", false), nodetest.HeldDevice(gpu.ShareOf(g, gpu.ByMemory, profile.Default().Sharing), "GPU-1", false)
	half.ShareID, half.Amount = "s1", &gpu.Amount{Fraction: 500, Memory: 40}
	some.ShareID, some.Amount = "s2", &gpu.Amount{Memory: 20}
	again := some
	again.ShareID = "s3"
	m := NewMetrics(func() []ledger.Record {
		return []ledger.Record{nodetest.PreparedRecord("a", []string{"web"}, half, some, again)}
	})
	const fraction, memory = `claim="a",container="",device="gpu-0000-01-00-0-fraction-share"`, `claim="a",container="",device="gpu-0000-01-00-0-memory-share"`
	assert.Equal(t, []string{
		`tranche_share_fraction{` + fraction + `,namespace="team",pod="",share_id="s1"} 0.5`,
		`tranche_share_info{` + fraction + `,isolation="cooperative",namespace="team",pod="",share="fraction",share_id="s1",sharing="timeslicing"} 1`,
		`tranche_share_info{` + memory + `,isolation="none",namespace="team",pod="",share="memory",share_id="s2",sharing="timeslicing"} 1`,
		`tranche_share_info{` + memory + `,isolation="none",namespace="team",pod="",share="memory",share_id="s3",sharing="timeslicing"} 1`,
		`tranche_share_memory_bytes{` + fraction + `,namespace="team",pod="",share_id="s1"} 40`,
		`tranche_share_memory_bytes{` + memory + `,namespace="team",pod="",share_id="s2"} 20`,
		`tranche_share_memory_bytes{` + memory + `,namespace="team",pod="",share_id="s3"} 20`,
		`tranche_share_memory_limit_bytes{` + fraction + `,namespace="team",pod="",share_id="s1"} 40`,
	}, nodetest.Scrape(t, m.Handler(), "tranche_share_"))
}
