package controller

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
	resourceapi "k8s.io/api/resource/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/api/v1alpha1"
	"github.com/tranche-dev/tranche/pkg/controller/drain"
)

var waitingClaimsDesc = prometheus.NewDesc(v1alpha1.MetricWaitingClaims,
	"Claims of pods that are not allocated, by DeviceClass; empty: it does not exist.", []string{"device_class"}, nil)

// collectClaims counts the claims that wait. Claims that no pod owns may wait for nothing, and are
// not counted. Only classes that exist become labels: anybody may write any name into a claim.
func (c *nodeCollector) collectClaims(ctx context.Context, out chan<- prometheus.Metric) {
	var classes resourceapi.DeviceClassList
	var claims resourceapi.ResourceClaimList
	for _, list := range []client.ObjectList{&classes, &claims} {
		if err := c.r.Client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			out <- prometheus.NewInvalidMetric(waitingClaimsDesc, err)
			return
		}
	}
	waiting := map[string]int{}
	for i := range classes.Items {
		waiting[classes.Items[i].Name] = 0
	}
	for i := range claims.Items {
		claim := &claims.Items[i]
		if claim.Status.Allocation != nil || claim.DeletionTimestamp != nil || !drain.OfPod(claim) {
			continue
		}
		for _, class := range drain.Classes(claim) {
			if _, exists := waiting[class]; !exists {
				class = ""
			}
			waiting[class]++
		}
	}
	for class, n := range waiting {
		out <- prometheus.MustNewConstMetric(waitingClaimsDesc, prometheus.GaugeValue, float64(n), class)
	}
}
