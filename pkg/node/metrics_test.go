package node

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/pkg/claim/ledger"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/publish"
)

// scrape returns the lines of /metrics that are samples of a metric.
func scrape(t *testing.T, m *metrics, name string) []string {
	t.Helper()
	answer := httptest.NewRecorder()
	promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{}).ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/metrics", http.NoBody))
	require.Equal(t, http.StatusOK, answer.Code, answer.Body)
	var lines []string
	for line := range strings.Lines(answer.Body.String()) {
		if strings.HasPrefix(line, name) {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	slices.Sort(lines)
	return lines
}

func preparedRecord(uid string, pods []string, devices ...ledger.Device) ledger.Record {
	r := ledger.Record{Claim: ledger.ClaimRef{UID: "uid", Namespace: "team", Name: uid}, State: ledger.Prepared, Devices: devices}
	for _, pod := range pods {
		r.Pods = append(r.Pods, ledger.Pod{Name: pod})
	}
	return r
}

func heldDevice(p gpu.Placement, uuid string, admin bool) ledger.Device {
	return ledger.Device{Name: p.Name(), Placement: p, UUID: uuid, Admin: admin}
}

func TestMetricsOfClaims(t *testing.T) {
	one, g := gpuAt("0000:01:00.0").Placements[0], gpuAt("0000:02:00.0").Placements[1]
	amd := amdGPUAt("0000:05:00.0", "NPS1").Placements
	unfinished := preparedRecord("unfinished", nil, heldDevice(g, "", false))
	unfinished.State = ledger.Preparing
	records := []ledger.Record{
		// Two requests with one device, and a pod that replaces one of its name.
		preparedRecord("a", []string{"web-0", "web-0", "web-1"}, heldDevice(one, "MIG-1", false), heldDevice(one, "MIG-1", true)),
		preparedRecord("b", nil, heldDevice(g, "GPU-2", false)),
		preparedRecord("c", nil, heldDevice(amd[1], "", false)),
		preparedRecord("d", nil, heldDevice(amd[3], "e3a9", false)),
		unfinished,
	}
	m := newMetrics(func() []ledger.Record { return records })
	assert.Equal(t, []string{
		`tranche_claim_info{claim="a",device="gpu-0000-01-00-0-mig-1g-10gb-2",gpu="gpu-0000-01-00-0",namespace="team",pod="web-0",profile="1g.10gb",type="mig",uuid="MIG-1"} 1`,
		`tranche_claim_info{claim="a",device="gpu-0000-01-00-0-mig-1g-10gb-2",gpu="gpu-0000-01-00-0",namespace="team",pod="web-1",profile="1g.10gb",type="mig",uuid="MIG-1"} 1`,
		`tranche_claim_info{claim="b",device="gpu-0000-02-00-0",gpu="gpu-0000-02-00-0",namespace="team",pod="",profile="",type="gpu",uuid="GPU-2"} 1`,
		`tranche_claim_info{claim="c",device="gpu-0000-05-00-0-cpx-1",gpu="gpu-0000-05-00-0",namespace="team",pod="",profile="cpx",type="xcp",uuid=""} 1`,
		`tranche_claim_info{claim="d",device="gpu-0000-05-00-0",gpu="gpu-0000-05-00-0",namespace="team",pod="",profile="",type="gpu",uuid="e3a9"} 1`,
	}, scrape(t, m, "tranche_claim_info{"))
	assert.Equal(t, []string{
		`tranche_prepared_devices{profile="",type="gpu"} 2`,
		`tranche_prepared_devices{profile="1g.10gb",type="mig"} 1`,
		`tranche_prepared_devices{profile="cpx",type="xcp"} 1`,
	}, scrape(t, m, "tranche_prepared_devices{"))
	records = nil
	assert.Empty(t, scrape(t, m, "tranche_claim_info{"), "released claims are gone")
}

func TestMetricsOfPublishing(t *testing.T) {
	m := newMetrics(func() []ledger.Record { return nil })
	for range 2 {
		resources, errs := publish.Resources("node-a", []publish.GPU{{GPU: gpuAt("0000:01:00.0")}, {GPU: gpuAt("0000:02:00.0"), Withheld: true}})
		require.Empty(t, errs)
		m.publishedDevices(resources)
	}
	assert.Equal(t, []string{
		`tranche_published_devices{profile="",type="gpu"} 1`,
		`tranche_published_devices{profile="1g.10gb",type="mig"} 1`,
	}, scrape(t, m, "tranche_published_devices{"))
}

// Dashboards and alerts rely on these names and labels.
func TestMetricNamesAreStable(t *testing.T) {
	m := newMetrics(func() []ledger.Record { return nil })
	m.Phase("prepare", "create", time.Millisecond, errors.New("x"))
	m.operation("unprepare", time.Now(), nil)
	m.findings.WithLabelValues("ForeignPartition", "success").Inc()
	var counts []string
	for _, line := range scrape(t, m, "tranche_") {
		if !strings.Contains(line, "_bucket") && !strings.Contains(line, "_sum") {
			counts = append(counts, line)
		}
	}
	assert.Equal(t, []string{
		`tranche_claim_duration_seconds_count{operation="unprepare",result="success"} 1`,
		`tranche_claim_phase_duration_seconds_count{operation="prepare",phase="create",result="failure"} 1`,
		`tranche_publish_errors_total 0`,
		`tranche_reconcile_findings_total{reason="ForeignPartition",result="success"} 1`,
	}, counts)
}
