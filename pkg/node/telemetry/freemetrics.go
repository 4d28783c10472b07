package telemetry

import (
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

// collectFree reports what is left of the GPUs that are published. The number of samples depends on
// the GPUs and their profiles only.
func collectFree(ch chan<- prometheus.Metric, gpus []gpu.GPU, records []ledger.Record) {
	held := ledger.Held(records)
	kinds := map[kind]bool{}
	all := make([]gpu.Free, len(gpus))
	for i, g := range gpus {
		all[i] = g.Free(held[g.PCIAddress])
		gauge(ch, freeMemoryDesc, float64(all[i].Memory), g.Name())
		gauge(ch, allocatedMemoryDesc, float64(all[i].Allocated), g.Name())
		if all[i].ComputeUnits+all[i].AllocatedUnits > 0 {
			gauge(ch, freeUnitsDesc, float64(all[i].ComputeUnits), g.Name())
			gauge(ch, allocatedUnitsDesc, float64(all[i].AllocatedUnits), g.Name())
		}
		for _, f := range all[i].Fits {
			kinds[kind{f.Type, f.Profile}] = true
			gauge(ch, freeDevicesDesc, float64(f.Count), g.Name(), string(f.Type), f.Profile)
		}
	}
	for k := range kinds {
		gauge(ch, fragmentationDesc, gpu.Fragmentation(all, k.deviceType, k.profile), string(k.deviceType), k.profile)
	}
}
