package controller

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
	resourceapi "k8s.io/api/resource/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/controller/drain"
)

var (
	waitingClaimsDesc = prometheus.NewDesc(names.MetricWaitingClaims,
		"Claims of pods that are not allocated, by DeviceClass; empty: it does not exist.", []string{"device_class"}, nil)
	unallocatedClaimsDesc = prometheus.NewDesc(names.MetricUnallocatedClaims,
		"Claims made for pods that are not allocated, of all DRA drivers.", nil, nil)
)

// collectClaims counts the claims that wait: in all, and once for each class that they name. Claims
// that no pod owns may wait for nothing, and are not counted. Only classes that exist become labels:
// anybody may write any name into a claim.
func (c *nodeCollector) collectClaims(ctx context.Context, out chan<- prometheus.Metric) {
	var classes resourceapi.DeviceClassList
	var claims resourceapi.ResourceClaimList
	for _, list := range []client.ObjectList{&classes, &claims} {
		if err := c.r.Client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			out <- prometheus.NewInvalidMetric(waitingClaimsDesc, err)
			return
		}
	}
	waiting, unallocated := map[string]int{}, 0
	for i := range classes.Items {
		waiting[classes.Items[i].Name] = 0
	}
	for i := range claims.Items {
		claim := &claims.Items[i]
		if claim.Status.Allocation != nil || claim.DeletionTimestamp != nil || !drain.OfPod(claim) {
			continue
		}
		unallocated++
		named := map[string]bool{}
		for _, class := range drain.Classes(claim) {
			if _, exists := waiting[class]; !exists {
				class = ""
			}
			named[class] = true
		}
		for class := range named {
			waiting[class]++
		}
	}
	out <- prometheus.MustNewConstMetric(unallocatedClaimsDesc, prometheus.GaugeValue, float64(unallocated))
	for class, n := range waiting {
		out <- prometheus.MustNewConstMetric(waitingClaimsDesc, prometheus.GaugeValue, float64(n), class)
	}
}
