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
	claimsByClassDesc = prometheus.NewDesc(names.MetricPendingClaimsByDeviceClass,
		"Claims of pods that are not allocated, by DeviceClass; empty: it does not exist.", []string{"device_class"}, nil)
	claimsDesc = prometheus.NewDesc(names.MetricPendingClaims,
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
			out <- prometheus.NewInvalidMetric(claimsByClassDesc, err)
			return
		}
	}
	byClass, pending := map[string]int{}, 0
	for i := range classes.Items {
		byClass[classes.Items[i].Name] = 0
	}
	for i := range claims.Items {
		claim := &claims.Items[i]
		if claim.Status.Allocation != nil || claim.DeletionTimestamp != nil || !drain.OfPod(claim) {
			continue
		}
		pending++
		named := map[string]bool{}
		for _, class := range drain.Classes(claim) {
			if _, exists := byClass[class]; !exists {
				class = ""
			}
			named[class] = true
		}
		for class := range named {
			byClass[class]++
		}
	}
	out <- prometheus.MustNewConstMetric(claimsDesc, prometheus.GaugeValue, float64(pending))
	for class, n := range byClass {
		out <- prometheus.MustNewConstMetric(claimsByClassDesc, prometheus.GaugeValue, float64(n), class)
	}
}
