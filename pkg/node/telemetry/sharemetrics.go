package telemetry

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/claim/ledger"
	"github.com/tranche-dev/tranche/pkg/gpu"
)

// shareLabels identify a share. pod and container are empty, so that Prometheus does not put those
// of the plugin beside the namespace of a claim. tranche_claim_info has the pods.
var shareLabels = []string{"namespace", "pod", "container", "claim", "device", "share_id"}

var (
	shareInfoDesc = prometheus.NewDesc(names.MetricShareInfo,
		"1 for each share that a claim holds.",
		append(slices.Clone(shareLabels), "share_unit", "sharing_strategy", "isolation"), nil)
	shareMemoryDesc = prometheus.NewDesc(names.MetricShareAllocatedMemory,
		"Memory that a claim was allocated from a share.", shareLabels, nil)
	shareLimitDesc = prometheus.NewDesc(names.MetricShareMemoryLimit,
		"Memory limit of a claim; absent where nothing enforces one.", shareLabels, nil)
	shareFractionDesc = prometheus.NewDesc(names.MetricShareAllocatedRatio,
		"Fraction that a claim was allocated from a share, 0 to 1.", shareLabels, nil)
)

// collectShare reports a device of a claim, if it is a share.
func collectShare(ch chan<- prometheus.Metric, r *ledger.Record, d *ledger.Device) {
	if !d.IsShare() {
		return
	}
	labels := []string{r.Claim.Namespace, "", "", r.Claim.Name, d.Name, string(d.ShareID)}
	s := d.Placement.Share
	gauge(ch, shareInfoDesc, 1, append(slices.Clone(labels), string(s.By), string(s.Strategy), string(d.Placement.Isolation))...)
	if d.Amount.Memory > 0 {
		gauge(ch, shareMemoryDesc, float64(d.Amount.Memory), labels...)
	}
	if d.Placement.Isolation != gpu.IsolationNone {
		gauge(ch, shareLimitDesc, float64(d.MemoryMost()), labels...)
	}
	if s.By == gpu.ByFraction {
		gauge(ch, shareFractionDesc, float64(d.Amount.Fraction)/gpu.WholeFraction, labels...)
	}
}
