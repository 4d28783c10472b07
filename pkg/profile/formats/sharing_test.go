package formats

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/profile"
	"github.com/tranche-dev/tranche/pkg/publish/models"
)

func gpusOf(t testing.TB, inventory string) []gpu.GPU {
	t.Helper()
	i, err := models.LoadInventory(inventory)
	require.NoError(t, err)
	return i.Hardware("node-a")
}

// resolved is what the rules of a configuration make of a GPU.
func resolved(t testing.TB, p Profile, gpus ...gpu.GPU) profile.Desired {
	t.Helper()
	require.NoError(t, p.Err)
	rules, err := profile.FromRules(p.Original, p.Spec.Rules)
	require.NoError(t, err)
	all, err := rules.Resolve(gpus, nil)
	require.NoError(t, err)
	return all[gpus[0].PCIAddress]
}

// A configuration of the device plugin says nothing of AMD's GPUs, and what it does not share is not
// shared.
func TestDevicePluginConfig(t *testing.T) {
	h100, mi300x := gpusOf(t, "h100x8")[0], gpusOf(t, "mi300x8")[0]
	p := ReadDevicePlugin("f", "mps", []byte("flags: {failOnInitError: true}\nsharing: {mps: {resources: [{name: nvidia.com/gpu, replicas: 4}]}}"))
	assert.Equal(t, "mps", p.Name)
	d := resolved(t, p, h100)
	assert.True(t, d.Shared)
	assert.Equal(t, gpu.Sharing{Strategy: gpu.MPS, Replicas: 4, MaxClients: profile.DefaultMaxClients, FailRequestsGreaterThanOne: true, ExclusiveProcess: true}, d.Sharing)
	assert.Equal(t, v1beta1.ExtendedResource{Device: v1beta1.DeviceGPUReplica}, d.ExtendedResource)
	assert.Equal(t, profile.Default(), resolved(t, p, mi300x))
	require.NotEmpty(t, p.Notes)
	assert.Contains(t, p.Notes[0], "flags.failOnInitError: is not used")
	assert.False(t, resolved(t, ReadDevicePlugin("f", "none", []byte("version: v1")), h100).Shared)
	assert.ErrorContains(t, ReadDevicePlugin("f", "bad", []byte("sharings: {}")).Err, "f: sharings: unknown key; did you mean sharing?")
}

// The device plugin's file says what nvidia.com/gpu is, with the partitions that a profile made:
// seven slices of ten replicas.
func TestDevicePluginConfigOnPartitions(t *testing.T) {
	d := resolved(t, ReadDevicePlugin("f", "slice-10", []byte("{flags: {migStrategy: single}, sharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 10}]}}}")), gpusOf(t, "h100x8")[0])
	assert.Equal(t, 10, d.Replicas)
	placements := gpusOf(t, "h100x8")[0].WithMIG(gpu.MIGOn).Placements
	slice := placements[0]
	other := placements[slices.IndexFunc(placements, func(p gpu.Placement) bool { return p.Type != gpu.TypeGPU && p.Profile != slice.Profile })]
	for name, tt := range map[string]struct {
		layout profile.Layout
		want   string
	}{
		"seven slices": {profile.Layout{Partitioning: profile.PartitioningStatic, Static: []gpu.Placement{slice}}, "a replica of a partition " + slice.Profile},
		"whole":        {profile.Layout{Partitioning: profile.PartitioningOff}, "a replica of the whole GPU"},
		"on demand":    {profile.Layout{}, "a replica of the whole GPU"},
		"two profiles": {
			profile.Layout{Partitioning: profile.PartitioningStatic, Static: []gpu.Placement{slice, other}},
			"nothing, because the GPU has partitions of several profiles: ask for nvidia.com/mig-<profile> (MIG strategy mixed), or partition the GPU into one profile",
		},
	} {
		d.Layout = tt.layout
		assert.Equal(t, tt.want, d.ExtendedResourceText(), name)
	}
}

// Whatever the device plugin's reader lets pass, the settings take.
func FuzzDevicePluginSettings(f *testing.F) {
	f.Add([]byte("sharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 4}]}}"))
	f.Add([]byte("sharing: {timeSlicing: {renameByDefault: true, resources: [{name: mig-1g.5gb, replicas: 1000}]}}"))
	f.Add([]byte("sharing: {mps: {failRequestsGreaterThanOne: false, resources: [{name: nvidia.com/gpu, replicas: 48}]}}"))
	h100, mi300x := gpusOf(f, "h100x8")[0], gpusOf(f, "mi300x8")[0]
	f.Fuzz(func(t *testing.T, data []byte) {
		p := ReadDevicePlugin("f", "name", data)
		if p.Err != nil {
			require.NotContains(t, p.Err.Error(), "spec.rules", "the error is about what was written")
			return
		}
		d := resolved(t, p, h100)
		require.LessOrEqual(t, d.Replicas, gpu.WholeFraction)
		require.Equal(t, profile.Default(), resolved(t, p, mi300x))
	})
}
