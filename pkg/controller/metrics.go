package controller

import (
	"cmp"
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1beta1"
)

type metrics struct {
	states    *prometheus.HistogramVec
	durations *prometheus.HistogramVec
	switches  *prometheus.CounterVec
	evictions *prometheus.CounterVec
}

func newMetrics(registry prometheus.Registerer, r *Reconciler) *metrics {
	// From a second to an hour: reloading a driver takes minutes, a drain up to its
	// deadline.
	buckets := []float64{.5, 1, 2, 3, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 3600}
	m := &metrics{
		states: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    names.MetricSwitchStateDuration,
			Help:    "Histogram: time that nodes spent in each state of a switch.",
			Buckets: buckets,
		}, []string{"state"}),
		durations: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    names.MetricSwitchDuration,
			Help:    "Histogram: duration of switches, without waiting for other nodes.",
			Buckets: buckets,
		}, []string{"result"}),
		switches: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: names.MetricSwitches,
			Help: "Finished switches.",
		}, []string{"result", "reason"}),
		evictions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: names.MetricSwitchEvictions,
			Help: "Evictions of pods: Evicted, Refused, Forced.",
		}, []string{"result"}),
	}
	registry.MustRegister(m.states, m.durations, m.switches, m.evictions, &nodeCollector{r})
	return m
}

func (m *metrics) switched(record *v1beta1.SwitchRecord) {
	m.switches.WithLabelValues(string(record.Result), record.Reason).Inc()
	m.durations.WithLabelValues(string(record.Result)).Observe(record.Duration.Seconds())
}

var (
	nodesDesc = prometheus.NewDesc(names.MetricGPUNodes,
		"Nodes with GPUs by the state of their switch; Unknown: none yet.", []string{"state"}, nil)
	notReadyDesc = prometheus.NewDesc(names.MetricGPUNodesNotReady,
		"Nodes whose desired profile is not applied, by the reason of the condition Ready.", []string{"reason"}, nil)
	notReadySinceDesc = prometheus.NewDesc(names.MetricGPUNodeNotReadyTime,
		"Unix time since when the desired profile is not applied on a node; absent if it is, or if the node only waits for other nodes.",
		[]string{"node", "reason"}, nil)
	overdueDesc = prometheus.NewDesc(names.MetricGPUNodesOverdue,
		"Nodes whose switch has passed the deadline of its state.", nil, nil)
	unavailableDesc = prometheus.NewDesc(names.MetricUnplannedSwitchingNodes,
		"Nodes without a PartitionPlan that are in a switch, as maxUnavailable counts them.", nil, nil)
	planNodesDesc = prometheus.NewDesc(names.MetricPlanNodes,
		"Nodes of a PartitionPlan, by what status.nodeCounts counts.", []string{"plan", "state"}, nil)
	planStoppedDesc = prometheus.NewDesc(names.MetricPlanStopped,
		"1 if the PartitionPlan has stopped because nodes failed, otherwise 0.", []string{"plan"}, nil)
	limitDesc = prometheus.NewDesc(names.MetricUnplannedSwitchingNodesLimit,
		"Nodes without a PartitionPlan that may be in a switch at once.", nil, nil)
)

// nodeCollector reads the nodes when metrics are scraped.
type nodeCollector struct{ r *Reconciler }

// Describe implements prometheus.Collector.
func (c *nodeCollector) Describe(descs chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{nodesDesc, notReadyDesc, notReadySinceDesc, overdueDesc, unavailableDesc, limitDesc, planNodesDesc, planStoppedDesc, claimsByClassDesc, claimsDesc} {
		descs <- d
	}
}

// Collect implements prometheus.Collector.
func (c *nodeCollector) Collect(out chan<- prometheus.Metric) {
	if !c.r.Plans.Decided() {
		// Only the leader reports nodes, otherwise they would be counted twice.
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	var all v1beta1.GPUNodeList
	if err := c.r.Client.List(ctx, &all, client.UnsafeDisableDeepCopy); err != nil {
		out <- prometheus.NewInvalidMetric(nodesDesc, err)
		return
	}
	states, reasons := map[v1beta1.State]int{}, map[string]int{}
	overdue, now := 0, c.r.Clock.Now()
	for i := range all.Items {
		s := &all.Items[i].Status
		states[cmp.Or(s.State, names.StateUnknown)]++
		if s.Switch != nil && s.Switch.DeadlineTime != nil && now.Sub(s.Switch.DeadlineTime.Time) > callTimeout {
			overdue++
		}
		for _, cond := range s.Conditions {
			if cond.Type == names.ConditionReady && cond.Status != "True" {
				reasons[cond.Reason]++
				if since := behindSince(s, cond.LastTransitionTime.Time); !since.IsZero() {
					out <- prometheus.MustNewConstMetric(notReadySinceDesc, prometheus.GaugeValue, float64(since.Unix()), all.Items[i].Name, cond.Reason)
				}
			}
		}
	}
	for _, s := range allStates {
		out <- prometheus.MustNewConstMetric(nodesDesc, prometheus.GaugeValue, float64(states[s]), string(s))
	}
	for reason, n := range reasons {
		out <- prometheus.MustNewConstMetric(notReadyDesc, prometheus.GaugeValue, float64(n), reason)
	}
	out <- prometheus.MustNewConstMetric(overdueDesc, prometheus.GaugeValue, float64(overdue))
	c.collectPlans(out)
	c.collectClaims(ctx, out)
	switching, limit := c.r.Plans.Switching()
	out <- prometheus.MustNewConstMetric(unavailableDesc, prometheus.GaugeValue, float64(switching))
	out <- prometheus.MustNewConstMetric(limitDesc, prometheus.GaugeValue, float64(limit))
}

// collectPlans has the metrics of plans.
func (c *nodeCollector) collectPlans(out chan<- prometheus.Metric) {
	for _, p := range c.r.Plans.Plans() {
		n := &p.Status.NodeCounts
		for state, nodes := range map[string]int32{
			names.PlanNodeUpdated: n.Updated, names.PlanNodeSwitching: n.Switching, names.PlanNodeWaiting: n.Waiting, names.PlanNodeFailed: n.Failed,
			names.PlanNodeSetAside: n.SetAside, names.PlanNodeNotReady: n.NotReady, names.PlanNodeOverridden: n.Overridden,
		} {
			out <- prometheus.MustNewConstMetric(planNodesDesc, prometheus.GaugeValue, float64(nodes), p.Name, state)
		}
		stopped := 0.
		if p.Status.Stopped != nil {
			stopped = 1
		}
		out <- prometheus.MustNewConstMetric(planStoppedDesc, prometheus.GaugeValue, stopped, p.Name)
	}
}

// behindSince returns since when a node that is not ready needs attention, zero if it does not. In
// a large cluster nodes can wait for other nodes for hours. Only a first attempt that waits
// needs no attention.
func behindSince(s *v1beta1.GPUNodeStatus, notReady time.Time) time.Time {
	switch sw := s.Switch; {
	case sw == nil || sw.Attempt > 1:
		return notReady
	case s.State == v1beta1.Waiting:
		return time.Time{}
	case sw.StartTime.After(notReady):
		return sw.StartTime.Time
	}
	return notReady
}

var allStates = []v1beta1.State{
	v1beta1.Idle, v1beta1.Planning, v1beta1.Waiting, v1beta1.Tainted, v1beta1.Draining, v1beta1.Applying,
	v1beta1.Rebooting, v1beta1.Verifying, v1beta1.RollingBack, v1beta1.Failed,
	names.StateUnknown,
}
