package controller

import (
	"fmt"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/controller/drain"
	"github.com/tranche-dev/tranche/test/golden"
)

// What the alerts of the chart go by: since when a node does not follow its profile, and
// whether a switch hangs.
func TestMetricsOfNodes(t *testing.T) {
	w := newWorld(t)
	at := func(ago time.Duration) metav1.Time { return metav1.NewTime(noon.Add(-ago)) }
	behind := func(ago time.Duration) []metav1.Condition {
		return []metav1.Condition{{Type: names.ConditionReady, Status: "False", Reason: names.ReasonSwitching, LastTransitionTime: at(ago)}}
	}
	for name, status := range map[string]v1beta1.GPUNodeStatus{
		"well":  {State: v1beta1.Idle, Conditions: []metav1.Condition{{Type: names.ConditionReady, Status: "True", Reason: "Applied", LastTransitionTime: at(time.Hour)}}},
		"fails": {State: v1beta1.Failed, Conditions: []metav1.Condition{{Type: names.ConditionReady, Status: "False", Reason: "DrainDeadline", LastTransitionTime: at(2 * time.Minute)}}},
		"works": {State: v1beta1.Applying, Switch: &v1beta1.Switch{DeadlineTime: microTime(noon.Add(time.Minute))}},
		"late":  {State: v1beta1.Applying, Switch: &v1beta1.Switch{DeadlineTime: microTime(noon.Add(-time.Second))}},
		"hangs": {State: v1beta1.Draining, Switch: &v1beta1.Switch{DeadlineTime: microTime(noon.Add(-time.Minute))},
			Conditions: []metav1.Condition{{Type: names.ConditionReady, Status: "False", Reason: names.ReasonSwitching, LastTransitionTime: at(time.Hour)}}},
		"waits":       {State: v1beta1.Waiting, Switch: &v1beta1.Switch{Attempt: 1, StartTime: *microTime(noon.Add(-5 * time.Hour))}, Conditions: behind(5 * time.Hour)},
		"waits again": {State: v1beta1.Waiting, Switch: &v1beta1.Switch{Attempt: 2, StartTime: *microTime(noon)}, Conditions: behind(5 * time.Hour)},
		"begins":      {State: v1beta1.Draining, Switch: &v1beta1.Switch{Attempt: 1, StartTime: *microTime(noon.Add(-time.Minute))}, Conditions: behind(5 * time.Hour)},
	} {
		o := &v1beta1.GPUNode{ObjectMeta: metav1.ObjectMeta{Name: name}}
		require.NoError(t, w.api.Create(t.Context(), o))
		o.Status = status
		require.NoError(t, w.api.Status().Update(t.Context(), o))
	}
	assert.Zero(t, testutil.CollectAndCount(&nodeCollector{w.r}), "who does not lead counts no nodes")
	require.NoError(t, w.r.Plans.Begin(t.Context()))
	w.failList = func(client.ObjectList) error { return assert.AnError }
	require.ErrorContains(t, testutil.CollectAndCompare(&nodeCollector{w.r}, strings.NewReader("")), assert.AnError.Error())
	w.failList = nil
	require.NoError(t, testutil.CollectAndCompare(&nodeCollector{w.r}, strings.NewReader(`
# HELP tranche_gpu_node_not_ready_timestamp_seconds Unix time since when the desired profile is not applied on a node; absent if it is, or if the node only waits for other nodes.
# TYPE tranche_gpu_node_not_ready_timestamp_seconds gauge
tranche_gpu_node_not_ready_timestamp_seconds{node="begins",reason="Switching"} `+unix(noon.Add(-time.Minute))+`
tranche_gpu_node_not_ready_timestamp_seconds{node="fails",reason="DrainDeadline"} `+unix(noon.Add(-2*time.Minute))+`
tranche_gpu_node_not_ready_timestamp_seconds{node="hangs",reason="Switching"} `+unix(noon.Add(-time.Hour))+`
tranche_gpu_node_not_ready_timestamp_seconds{node="waits again",reason="Switching"} `+unix(noon.Add(-5*time.Hour))+`
# HELP tranche_gpu_nodes_not_ready Nodes whose desired profile is not applied, by the reason of the condition Ready.
# TYPE tranche_gpu_nodes_not_ready gauge
tranche_gpu_nodes_not_ready{reason="DrainDeadline"} 1
tranche_gpu_nodes_not_ready{reason="Switching"} 4
# HELP tranche_gpu_nodes_overdue Nodes whose switch has passed the deadline of its state.
# TYPE tranche_gpu_nodes_overdue gauge
tranche_gpu_nodes_overdue 1
`), "tranche_gpu_node_not_ready_timestamp_seconds", "tranche_gpu_nodes_not_ready", "tranche_gpu_nodes_overdue"))
}

// A cluster may have no node with GPUs for a while: the alert for a controller that does
// not work must not be told then.
func TestALeaderWithoutNodesTellsThatItWorks(t *testing.T) {
	w := newWorld(t)
	require.NoError(t, w.r.lead(t.Context()))
	assert.Equal(t, 1, testutil.CollectAndCount(&nodeCollector{w.r}, "tranche_unplanned_switching_nodes_limit"))
}

// A GPUNode that is new has no state yet, and is counted.
func TestANodeWithoutAStateIsCounted(t *testing.T) {
	w := newWorld(t)
	require.NoError(t, w.api.Create(t.Context(), &v1beta1.GPUNode{ObjectMeta: metav1.ObjectMeta{Name: "new"}}))
	require.NoError(t, w.r.lead(t.Context()))
	registry := prometheus.NewRegistry()
	registry.MustRegister(&nodeCollector{w.r})
	families, err := registry.Gather()
	require.NoError(t, err)
	counts := map[string]float64{}
	for _, f := range families {
		if f.GetName() == names.MetricGPUNodes {
			for _, m := range f.GetMetric() {
				counts[m.GetLabel()[0].GetValue()] = m.GetGauge().GetValue()
			}
		}
	}
	require.Len(t, counts, len(allStates))
	require.InDelta(t, 1, counts["Unknown"], 0)
}

// Claims that wait are counted by class. What a tenant writes becomes no label.
func TestMetricsOfClaims(t *testing.T) {
	w := newWorld(t)
	require.NoError(t, w.r.Plans.Begin(t.Context()))
	for _, name := range []string{"small", "large", "idle"} {
		require.NoError(t, w.api.Create(t.Context(), &resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: name}}))
	}
	claim := func(name string, change func(*resourceapi.ResourceClaim), classes ...string) {
		c := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: "team", OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "p", UID: "p"}},
		}}
		for _, class := range classes {
			c.Spec.Devices.Requests = append(c.Spec.Devices.Requests, resourceapi.DeviceRequest{Exactly: &resourceapi.ExactDeviceRequest{DeviceClassName: class}})
		}
		if change != nil {
			change(c)
		}
		trimmed, err := drain.TrimClaim(c)
		require.NoError(t, err)
		require.NoError(t, w.api.Create(t.Context(), trimmed.(*resourceapi.ResourceClaim)))
	}
	claim("a", nil, "small")
	claim("b", nil, "small", "small", "large")
	claim("c", func(c *resourceapi.ResourceClaim) {
		c.Spec.Devices.Requests = []resourceapi.DeviceRequest{{FirstAvailable: []resourceapi.DeviceSubRequest{{DeviceClassName: "large"}, {DeviceClassName: "made up"}}}}
	})
	claim("d", nil, "made up", "made up, too", "and another")
	claim("nobody", func(c *resourceapi.ResourceClaim) { c.OwnerReferences = nil }, "small")
	claim("allocated", func(c *resourceapi.ResourceClaim) { c.Status.Allocation = &resourceapi.AllocationResult{} }, "small")
	require.NoError(t, testutil.CollectAndCompare(&nodeCollector{w.r}, strings.NewReader(`
# HELP tranche_pending_claims Claims made for pods that are not allocated, of all DRA drivers.
# TYPE tranche_pending_claims gauge
tranche_pending_claims 4
# HELP tranche_pending_claims_by_device_class Claims of pods that are not allocated, by DeviceClass; empty: it does not exist.
# TYPE tranche_pending_claims_by_device_class gauge
tranche_pending_claims_by_device_class{device_class=""} 2
tranche_pending_claims_by_device_class{device_class="idle"} 0
tranche_pending_claims_by_device_class{device_class="large"} 2
tranche_pending_claims_by_device_class{device_class="small"} 2
`), "tranche_pending_claims_by_device_class", "tranche_pending_claims"))
}

// The chart's queries are tested on this scrape.
func TestRecordedScrape(t *testing.T) {
	w := newWorld(t)
	require.NoError(t, w.r.Plans.Begin(t.Context()))
	for _, name := range []string{"node-a", "node-b"} {
		o := &v1beta1.GPUNode{ObjectMeta: metav1.ObjectMeta{Name: name}}
		require.NoError(t, w.api.Create(t.Context(), o))
		o.Status = v1beta1.GPUNodeStatus{State: v1beta1.Idle, Conditions: []metav1.Condition{{Type: names.ConditionReady, Status: "True", Reason: "Applied"}}}
		require.NoError(t, w.api.Status().Update(t.Context(), o))
	}
	require.NoError(t, w.api.Create(t.Context(), &resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "gpu.tranche.dev"}}))
	require.NoError(t, w.api.Create(t.Context(), &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Name: "waits", Namespace: "team", OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "p", UID: "p"}}},
		Spec: resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{
			{Name: "gpu", Exactly: &resourceapi.ExactDeviceRequest{DeviceClassName: "gpu.tranche.dev"}},
		}}},
	}))
	registry := prometheus.NewRegistry()
	m := newMetrics(registry, w.r)
	m.switched(&v1beta1.SwitchRecord{Result: "Succeeded", Reason: "Applied", Duration: metav1.Duration{Duration: 90 * time.Second}})
	m.states.WithLabelValues("Applying").Observe(60)
	m.evictions.WithLabelValues("Evicted").Inc()
	answer := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(answer, httptest.NewRequest("GET", "/metrics", nil))
	golden.Equal(t, "../../test/promql/testdata/controller.txt", answer.Body.String())
}

// The metrics of a plan are what its status counts.
func TestMetricsOfPlans(t *testing.T) {
	w := idle(t)
	w.plan("rack", func(*v1beta1.PartitionPlanSpec) {})
	w.decide("node-a")
	n := w.planStatus("rack").NodeCounts
	require.EqualValues(t, 1, n.Switching+n.Waiting, n)
	want := "# HELP " + names.MetricPlanNodes + " Nodes of a PartitionPlan, by what status.nodeCounts counts.\n# TYPE " + names.MetricPlanNodes + " gauge\n"
	for state, nodes := range map[string]int32{
		names.PlanNodeUpdated: n.Updated, names.PlanNodeSwitching: n.Switching, names.PlanNodeWaiting: n.Waiting, names.PlanNodeFailed: n.Failed,
		names.PlanNodeSetAside: n.SetAside, names.PlanNodeNotReady: n.NotReady, names.PlanNodeOverridden: n.Overridden,
	} {
		want += fmt.Sprintf("%s{plan=\"rack\",state=\"%s\"} %d\n", names.MetricPlanNodes, state, nodes)
	}
	want += "# HELP " + names.MetricPlanStopped + " 1 if the PartitionPlan has stopped because nodes failed, otherwise 0.\n# TYPE " + names.MetricPlanStopped + " gauge\n" + names.MetricPlanStopped + "{plan=\"rack\"} 0\n"
	require.NoError(t, testutil.CollectAndCompare(&nodeCollector{w.r}, strings.NewReader(want), names.MetricPlanNodes, names.MetricPlanStopped))
}

func microTime(at time.Time) *metav1.MicroTime {
	m := metav1.NewMicroTime(at)
	return &m
}

func unix(at time.Time) string {
	return strconv.FormatFloat(float64(at.Unix()), 'g', -1, 64)
}
