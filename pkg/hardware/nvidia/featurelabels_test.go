package nvidia

import (
	"maps"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware"
)

func describedGPU(product string, mib int64, resource string, devices ...gpu.Placement) hardware.OfferedGPU {
	return hardware.OfferedGPU{
		GPU: gpu.GPU{ProductName: product, Memory: mib << 20, Placements: devices}, Static: true,
		Resource: func(p gpu.Placement) string {
			if resource == "" && p.Type == gpu.TypeMIG {
				return "nvidia.com/mig-" + p.Profile
			}
			if p.Share == nil && p.Type == gpu.TypeGPU || p.Share != nil || p.Type == gpu.TypeMIG && resource == "partition" {
				return "nvidia.com/gpu"
			}
			return ""
		},
	}
}

// The labels are those that GPU feature discovery writes for the same settings.
func TestNodeLabels(t *testing.T) {
	whole := gpu.Placement{Type: gpu.TypeGPU, Memory: 80 << 30}
	slice := gpu.Placement{Type: gpu.TypeMIG, Profile: "1g.5gb", Memory: 4864 << 20}
	seven := []gpu.Placement{slice, slice, slice, slice, slice, slice, slice}
	replica := func(p gpu.Placement, s gpu.Strategy) gpu.Placement {
		return gpu.ShareOf(p, gpu.ByFraction, gpu.Sharing{Strategy: s, Replicas: 10})
	}
	var shared []gpu.Placement
	for _, p := range seven {
		shared = append(shared, replica(p, gpu.TimeSlicing))
	}
	const a100 = "NVIDIA A100-SXM4-40GB"
	type labels = map[string]string
	gpuLabels := func(product, count, replicas, sharing, memory string) labels {
		all := labels{"nvidia.com/gpu.count": count, "nvidia.com/gpu.replicas": replicas}
		for key, value := range map[string]string{"product": product, "sharing-strategy": sharing, "memory": memory} {
			if value != "" {
				all["nvidia.com/gpu."+key] = value
			}
		}
		return all
	}
	with := func(base, more labels) labels { maps.Copy(base, more); return base }
	l4 := describedGPU("NVIDIA L4", 23034, "", whole)
	mixed := with(gpuLabels("NVIDIA-A100-SXM4-40GB", "1", "0", "", "40960"), labels{"nvidia.com/mig.strategy": "mixed",
		"nvidia.com/mig-1g.5gb.product": "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb", "nvidia.com/mig-1g.5gb.count": "7",
		"nvidia.com/mig-1g.5gb.replicas": "1", "nvidia.com/mig-1g.5gb.sharing-strategy": "none", "nvidia.com/mig-1g.5gb.memory": "4864"})
	for name, tt := range map[string]struct {
		gpus []hardware.OfferedGPU
		want labels
	}{
		"no GPU":        {nil, labels{}},
		"whole GPUs":    {[]hardware.OfferedGPU{l4, l4}, gpuLabels("NVIDIA-L4", "2", "1", "none", "23034")},
		"replicas":      {[]hardware.OfferedGPU{describedGPU("NVIDIA L4", 23034, "", replica(whole, gpu.TimeSlicing))}, gpuLabels("NVIDIA-L4-SHARED", "1", "10", "time-slicing", "23034")},
		"by MPS":        {[]hardware.OfferedGPU{describedGPU("NVIDIA L4", 23034, "", replica(whole, gpu.MPS))}, gpuLabels("NVIDIA-L4-SHARED", "1", "10", "mps", "23034")},
		"nothing known": {[]hardware.OfferedGPU{describedGPU("NVIDIA L4", 0, "", whole)}, gpuLabels("NVIDIA-L4", "1", "1", "none", "")},
		"mixed models":  {[]hardware.OfferedGPU{l4, describedGPU("NVIDIA T4", 15360, "", whole)}, gpuLabels("", "2", "1", "none", "15360")},
		"strategy single": {[]hardware.OfferedGPU{describedGPU(a100, 40960, "partition", seven...), describedGPU(a100, 40960, "partition", seven...)},
			with(gpuLabels("NVIDIA-A100-SXM4-40GB-MIG-1g.5gb", "14", "1", "none", "4864"), labels{"nvidia.com/mig.strategy": "single"})},
		"seven slices of ten replicas": {[]hardware.OfferedGPU{describedGPU(a100, 40960, "partition", shared...)},
			with(gpuLabels("NVIDIA-A100-SXM4-40GB-MIG-1g.5gb-SHARED", "7", "10", "time-slicing", "4864"), labels{"nvidia.com/mig.strategy": "single"})},
		"strategy mixed": {[]hardware.OfferedGPU{describedGPU(a100, 40960, "", seven...)}, mixed},
		"one of two partitioned": {[]hardware.OfferedGPU{describedGPU(a100, 40960, "", seven...), describedGPU(a100, 40960, "", whole)}, with(maps.Clone(mixed), labels{
			"nvidia.com/gpu.count": "2", "nvidia.com/gpu.replicas": "1", "nvidia.com/gpu.sharing-strategy": "none"})},
	} {
		got := Vendor{}.NodeLabels(tt.gpus)
		assert.Equal(t, tt.want, got, name)
		for key := range got {
			assert.True(t, Vendor{}.IsNodeLabel(key), key)
		}
	}
	onDemand := describedGPU(a100, 40960, "", append(seven, whole)...)
	onDemand.Static = false
	assert.Equal(t, with(gpuLabels("NVIDIA-A100-SXM4-40GB", "1", "1", "none", "40960"), labels{"nvidia.com/mig.strategy": "mixed"}),
		Vendor{}.NodeLabels([]hardware.OfferedGPU{onDemand}), "partitions on demand come and go")
}

func TestIsNodeLabel(t *testing.T) {
	for key, want := range map[string]bool{
		"nvidia.com/gpu.product": true, "nvidia.com/gpu.replicas": true, "nvidia.com/mig.strategy": true,
		"nvidia.com/mig-1g.24gb.me.all.count": true, "nvidia.com/mig-1g.24gb-me.memory": true,
		"nvidia.com/mig.config": false, "nvidia.com/mig.config.state": false, "nvidia.com/mig.capable": false,
		"nvidia.com/gpu.deploy.driver": false, "nvidia.com/gpu.present": false, "nvidia.com/gpu": false,
		"example.com/nvidia.com/gpu.product": false,
	} {
		assert.Equal(t, want, Vendor{}.IsNodeLabel(key), key)
	}
}
