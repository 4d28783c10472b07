package telemetry

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/claim/ledger"
	"github.com/tranche-dev/tranche/pkg/gpu"
)

var (
	freeMemoryDesc = prometheus.NewDesc(names.MetricFreeMemory,
		"Memory of a GPU that no claim holds.", []string{"gpu"}, nil)
	allocatedMemoryDesc = prometheus.NewDesc(names.MetricAllocatedMemory,
		"Memory of a GPU that claims hold.", []string{"gpu"}, nil)
	freeUnitsDesc = prometheus.NewDesc(names.MetricFreeComputeUnits,
		"Multiprocessors or compute units of a GPU that no claim holds.", []string{"gpu"}, nil)
	allocatedUnitsDesc = prometheus.NewDesc(names.MetricAllocatedComputeUnits,
		"Multiprocessors or compute units of a GPU that claims hold.", []string{"gpu"}, nil)
	freeDevicesDesc = prometheus.NewDesc(names.MetricFreeDevices,
		"How many more devices of a profile fit on a GPU, if no others are allocated.",
		[]string{"gpu", "type", "profile"}, nil)
	fragmentationDesc = prometheus.NewDesc(names.MetricFragmentation,
		"Part of the free memory that a profile cannot use, 0 to 1; see below.",
		[]string{"type", "profile"}, nil)
)

// freeCollector reports what is left of the GPUs that are published. It reads the ledger at each
// scrape. The number of samples depends on the GPUs and their profiles only.
type freeCollector struct {
	gpus    atomic.Pointer[[]gpu.GPU]
	records func() []ledger.Record
}

// Describe implements prometheus.Collector.
func (c *freeCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{freeMemoryDesc, allocatedMemoryDesc, freeUnitsDesc, allocatedUnitsDesc, freeDevicesDesc, fragmentationDesc} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c *freeCollector) Collect(ch chan<- prometheus.Metric) {
	gpus := c.gpus.Load()
	if gpus == nil {
		return
	}
	held := map[string][]gpu.Placement{}
	for _, r := range c.records() {
		for _, d := range r.Devices {
			if !d.Admin && !r.Released {
				held[d.Placement.GPU] = append(held[d.Placement.GPU], d.Placement)
			}
		}
	}
	type kind struct {
		deviceType gpu.Type
		profile    string
	}
	kinds := map[kind]bool{}
	all := make([]gpu.Free, len(*gpus))
	gauge := func(desc *prometheus.Desc, value float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
	}
	for i, g := range *gpus {
		all[i] = g.Free(held[g.PCIAddress])
		gauge(freeMemoryDesc, float64(all[i].Memory), g.Name())
		gauge(allocatedMemoryDesc, float64(all[i].Allocated), g.Name())
		if all[i].ComputeUnits+all[i].AllocatedUnits > 0 {
			gauge(freeUnitsDesc, float64(all[i].ComputeUnits), g.Name())
			gauge(allocatedUnitsDesc, float64(all[i].AllocatedUnits), g.Name())
		}
		for _, f := range all[i].Fits {
			kinds[kind{f.Type, f.Profile}] = true
			gauge(freeDevicesDesc, float64(f.Count), g.Name(), string(f.Type), f.Profile)
		}
	}
	for k := range kinds {
		gauge(fragmentationDesc, gpu.Fragmentation(all, k.deviceType, k.profile), string(k.deviceType), k.profile)
	}
}
