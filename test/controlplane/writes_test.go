package controlplane

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const metricsText = `# HELP apiserver_request_total [STABLE] Counter of requests
# TYPE apiserver_request_total counter
apiserver_request_total{code="200",group="tranche.dev",resource="gpunodes",subresource="status",verb="PATCH"} 5
apiserver_request_total{code="409",group="tranche.dev",resource="gpunodes",subresource="status",verb="PATCH"} 2
apiserver_request_total{code="200",group="tranche.dev",resource="gpunodes",subresource="status",verb="APPLY"} 3
apiserver_request_total{code="200",group="tranche.dev",resource="gpunodes",subresource="",verb="GET"} 99
apiserver_request_total{code="201",group="resource.k8s.io",resource="resourceslices",subresource="",verb="PUT"} 8
apiserver_request_total{code="200",group="resource.k8s.io",resource="nodes",subresource="status",verb="PATCH"} 8
apiserver_request_total{code="200",group="coordination.k8s.io",resource="leases",subresource="",verb="PUT"} 40
apiserver_request_total{code="201",group="",resource="events",subresource="",verb="POST"} 1
apiserver_request_total{code="201",group="events.k8s.io",resource="events",subresource="",verb="POST"} 1
apiserver_request_total{code="201",dry_run="All",group="",resource="pods",subresource="eviction",verb="POST"} 9
apiserver_request_total{code="201",dry_run="",group="",resource="pods",subresource="eviction",verb="POST"} 3
apiserver_request_total{code="409",dry_run="",group="",resource="pods",subresource="eviction",verb="POST"} 2
# TYPE other counter
other{verb="POST"} 7
`

func TestParseWrites(t *testing.T) {
	all, err := parseWrites(metricsText)
	require.NoError(t, err)
	assert.Equal(t, Writes{
		{"gpunodes/status", "PATCH"}: 7, {"gpunodes/status", "APPLY"}: 3, {"resourceslices", "PUT"}: 8,
		{"nodes/status", "PATCH"}: 8, {"leases", "PUT"}: 40, {"events", "POST"}: 2, {"pods/eviction", "POST"}: 5, Evicted: 3,
	}, all)
	_, err = parseWrites("no metrics {")
	require.Error(t, err)
}

func TestWritesSince(t *testing.T) {
	after, err := parseWrites(metricsText)
	require.NoError(t, err)
	before := Writes{{"gpunodes/status", "PATCH"}: 2, {"events", "POST"}: 2, {"leases", "PUT"}: 30}
	more := after.Since(before, "gpunodes", "gpunodes/status", "resourceslices", "events")
	assert.Equal(t, Writes{{"gpunodes/status", "PATCH"}: 5, {"gpunodes/status", "APPLY"}: 3, {"resourceslices", "PUT"}: 8}, more)
	assert.Equal(t, 16, more.Sum())
	assert.Equal(t, 8, more.Of("gpunodes/status"))
	assert.Zero(t, more.Of("leases"), "nobody asked for them")
	assert.Equal(t, 10, after.Since(before).Of("leases"))
}

func FuzzParseWrites(f *testing.F) {
	f.Add(metricsText)
	f.Fuzz(func(_ *testing.T, text string) { _, _ = parseWrites(text) })
}
