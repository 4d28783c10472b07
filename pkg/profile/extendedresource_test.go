package profile

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/gpu"
)

var (
	wholeGPU = gpu.Placement{GPU: "0000:c1:00.0", Type: gpu.TypeGPU, Profile: "spx"}
	smallMIG = gpu.Placement{GPU: "0000:c1:00.0", Type: gpu.TypeMIG, Profile: "1g.10gb", Size: 1}
	largeMIG = gpu.Placement{GPU: "0000:c1:00.0", Type: gpu.TypeMIG, Profile: "3g.40gb", Start: 4, Size: 4}
	aCPX     = gpu.Placement{GPU: "0000:c1:00.0", Type: gpu.TypeXCP, Profile: "cpx"}
)

func shareOf(p gpu.Placement, by gpu.Basis) gpu.Placement { return gpu.ShareOf(p, by, gpu.Sharing{}) }

// What nvidia.com/gpu and amd.com/gpu mean, by kind and layout.
func TestMeans(t *testing.T) {
	var all []gpu.Placement
	for _, p := range []gpu.Placement{wholeGPU, smallMIG, largeMIG, aCPX} {
		all = append(all, p, shareOf(p, gpu.ByMemory), shareOf(p, gpu.ByFraction))
	}
	static := func(p ...gpu.Placement) Layout {
		return Layout{Partitioning: PartitioningStatic, Static: p}
	}
	only := v1beta1.ExtendedResource{Device: v1beta1.DeviceAuto}
	replica := v1beta1.ExtendedResource{Device: v1beta1.DeviceAutoReplica}
	for name, test := range map[string]struct {
		resource v1beta1.ExtendedResource
		layout   Layout
		want     []gpu.Placement
	}{
		"nothing said":      {want: []gpu.Placement{wholeGPU}},
		"whole":             {resource: v1beta1.ExtendedResource{Device: v1beta1.DeviceGPU}, want: []gpu.Placement{wholeGPU}},
		"replica":           {resource: v1beta1.ExtendedResource{Device: v1beta1.DeviceGPUReplica}, want: []gpu.Placement{shareOf(wholeGPU, gpu.ByFraction)}},
		"partition":         {resource: v1beta1.ExtendedResource{Device: v1beta1.DevicePartition, Profile: "1g.10gb"}, want: []gpu.Placement{smallMIG}},
		"another partition": {resource: v1beta1.ExtendedResource{Device: v1beta1.DevicePartition, Profile: "3g.40gb"}, want: []gpu.Placement{largeMIG}},
		// The whole AMD GPU has a profile, and is no partition.
		"whole as a partition":                {resource: v1beta1.ExtendedResource{Device: v1beta1.DevicePartition, Profile: "spx"}},
		"only partition":                      {only, static(smallMIG, smallMIG), []gpu.Placement{smallMIG}},
		"only partition, of AMD":              {only, Layout{Compute: "CPX", Memory: "NPS4"}, []gpu.Placement{aCPX}},
		"only partition, on demand":           {only, Layout{NoWhole: true, Profiles: []string{"3g.40gb"}}, []gpu.Placement{largeMIG}},
		"only partition, several":             {only, static(smallMIG, largeMIG), nil},
		"only partition, GPU without MIG":     {only, Layout{}, []gpu.Placement{wholeGPU}},
		"only partition, MIG disabled":        {only, Layout{Partitioning: PartitioningOff}, []gpu.Placement{wholeGPU}},
		"only partition, SPX":                 {only, Layout{Compute: "SPX"}, []gpu.Placement{wholeGPU}},
		"replica of a partition":              {replica, static(largeMIG), []gpu.Placement{shareOf(largeMIG, gpu.ByFraction)}},
		"replica of a partition, of AMD":      {replica, Layout{Compute: "CPX"}, []gpu.Placement{shareOf(aCPX, gpu.ByFraction)}},
		"replica of a partition, several":     {replica, static(smallMIG, largeMIG), nil},
		"replica of a partition, without MIG": {replica, Layout{}, []gpu.Placement{shareOf(wholeGPU, gpu.ByFraction)}},
	} {
		d := Desired{ExtendedResource: test.resource, Layout: test.layout}
		var got []gpu.Placement
		for _, p := range all {
			if d.Means(p) {
				got = append(got, p)
			}
		}
		assert.Equal(t, test.want, got, name)
	}
}

// nvidia.com/mig-<profile> is a partition, or a replica for the profiles that are shared so.
func TestMIGResource(t *testing.T) {
	extra := smallMIG
	extra.Profile = "1g.24gb+me.all"
	d := Desired{Partitions: []string{"1g.10gb"}}
	assert.Equal(t, "nvidia.com/mig-1g.10gb", d.MIGResource(smallMIG))
	assert.Equal(t, "nvidia.com/mig-1g.24gb.me.all", d.MIGResource(extra))
	assert.Empty(t, d.MIGResource(shareOf(smallMIG, gpu.ByFraction)))
	assert.Empty(t, d.MIGResource(wholeGPU))
	assert.Empty(t, d.MIGResource(aCPX))
	d.MIGReplicas = true
	assert.Empty(t, d.MIGResource(smallMIG))
	assert.Empty(t, d.MIGResource(shareOf(smallMIG, gpu.ByMemory)))
	assert.Equal(t, "nvidia.com/mig-1g.10gb", d.MIGResource(shareOf(smallMIG, gpu.ByFraction)))
	assert.Equal(t, "nvidia.com/mig-3g.40gb", d.MIGResource(largeMIG), "it is not shared")
}

// Partitions can have numbers of replicas of their own.
func TestSharedPartitions(t *testing.T) {
	gpus := machine(t, "h100x8")
	resolved := func(rule string) (Desired, error) {
		states, err := fromRules(t, "["+rule+"]").Resolve(gpus, nil)
		return states[gpus[0].PCIAddress], err
	}
	d, err := resolved("{sharing: {replicas: 10, partitions: {profiles: [1g.10gb, 3g.40gb], units: [Memory, Fraction], extendedResource: {device: PartitionReplica}, replicas: [{profile: 3g.40gb, count: 4}]}}}")
	require.NoError(t, err)
	assert.Equal(t, []SharedPartition{{Profile: "1g.10gb", Bases: gpu.Bases(), Replicas: 10}, {Profile: "3g.40gb", Bases: gpu.Bases(), Replicas: 4}}, d.SharedPartitions())
	assert.True(t, d.MIGReplicas)

	d, err = resolved("{mig: {mode: Static, partitions: [{profile: 1g}]}, sharing: {replicas: 10}, extendedResource: {device: AutoReplica}}")
	require.NoError(t, err)
	assert.Equal(t, []SharedPartition{{Profile: "1g.10gb", Bases: []gpu.Basis{gpu.ByFraction}, Replicas: 10}}, d.SharedPartitions(), "the only partition of the layout")

	d, err = resolved("{mig: {mode: Static, partitions: [{profile: 3g}]}, sharing: {partitions: {profiles: [3g.40gb], units: [Fraction], replicas: [{profile: 3g.40gb, count: 4}]}}, extendedResource: {device: AutoReplica}}")
	require.NoError(t, err)
	assert.Equal(t, []SharedPartition{{Profile: "3g.40gb", Bases: []gpu.Basis{gpu.ByFraction}, Replicas: 4}}, d.SharedPartitions())

	d, err = resolved("{sharing: {replicas: 4}, extendedResource: {device: AutoReplica}}")
	require.NoError(t, err)
	assert.Empty(t, d.SharedPartitions(), "on demand it is a replica of the whole GPU")
	assert.Equal(t, "a replica of the whole GPU", d.ExtendedResourceText())
	static := Layout{Partitioning: PartitioningStatic, Static: []gpu.Placement{largeMIG, smallMIG, largeMIG}}
	assert.Equal(t, []string{"1g.10gb", "3g.40gb"}, static.partitions(), "each once")
}

// With Partition, the extended resource means one thing on a node, as with strategy single of
// NVIDIA's device plugin.
func TestOnlyPartitionIsRefused(t *testing.T) {
	for name, test := range map[string]struct{ machine, rules, want string }{
		"several profiles": {"h100x8", "{mig: {mode: Static, partitions: [{profile: 3g, count: 1}, {profile: 1g}]}, extendedResource: {device: Auto}}",
			"is Auto, and the GPU has partitions of several profiles (1g.10gb, 3g.40gb): use device Partition with one of them"},
		"two kinds of GPUs": {"h100x8", "{gpus: {count: 2}, mig: {mode: Static, partitions: [{profile: 1g}]}, extendedResource: {device: Auto}}, {extendedResource: {device: Auto}}",
			"is Auto, which means the whole GPU here and a partition 1g.10gb on GPU gpu-0000-1b-00-0: use device Partition, or partition the GPUs alike"},
		"replicas of partitions with engines": {"h100x8", "{mig: {mode: Static, partitions: [{profile: 1g.10gb+me}]}, extendedResource: {device: AutoReplica}}",
			"is AutoReplica, and partitions with extra engines (1g.10gb+me) are not shared"},
		"replicas of partitions shared by memory": {"h100x8", "{mig: {mode: Static, partitions: [{profile: 1g}]}, sharing: {partitions: {profiles: [1g.10gb]}}, extendedResource: {device: AutoReplica}}",
			"is AutoReplica, a share by fraction: add Fraction to sharing.partitions.units"},
		"partitions of any profile": {"h100x8", "{mig: {wholeGPUs: false}, extendedResource: {device: Auto}}",
			"is Auto, which means the whole GPU here, and the rule does not offer it: use device Partition, or leave extendedResource out"},
		"no partitions": {"h100x8", "{mig: {mode: NoPartitions}, extendedResource: {device: AutoReplica}}",
			"is AutoReplica, which means a replica of the whole GPU here, and the rule does not offer it: use device Partition, or leave extendedResource out"},
		"no replicas of whole GPUs": {"l4x4", "{sharing: {wholeGPUs: false}, extendedResource: {device: AutoReplica}}",
			"is AutoReplica, which means a replica of the whole GPU here, and sharing.wholeGPUs is false: there are no replicas"},
	} {
		_, err := fromRules(t, "["+test.rules+"]").Resolve(machine(t, test.machine), nil)
		assert.ErrorContains(t, err, test.want, name)
	}
	_, err := fromRules(t, "[{mig: {mode: Static, partitions: [{profile: 1g}]}, xcp: {computePartition: CPX}, extendedResource: {device: Auto}}]").
		Resolve(machine(t, "h100x2-mi300x2"), nil)
	assert.NoError(t, err, "each vendor has its own resource")

	_, err = fromRules(t, "[{mig: {profiles: [1g.5gb], wholeGPUs: false}, extendedResource: {device: Auto}}]").Resolve(machine(t, "h100x8"), nil)
	assert.ErrorContains(t, err, "has no profile 1g.5gb")
	assert.NotContains(t, err.Error(), "is Auto", "of a layout that does not fit, nothing is offered")
}
