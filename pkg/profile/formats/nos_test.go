package formats_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/profile"
	"github.com/tranche-dev/tranche/pkg/profile/formats"
	"github.com/tranche-dev/tranche/pkg/publish/models"
)

// What claims can have of an H100 and of an L4, which has no MIG.
func TestNosProfile(t *testing.T) {
	inventory, err := models.LoadInventory("mixed")
	require.NoError(t, err)
	gpus := inventory.Hardware("node")
	for way, want := range map[string]map[string][3]bool{
		// partitions, the whole GPU, shares by MPS
		"mig":    {"NVIDIA H100 80GB HBM3": {true, false, false}},
		"mps":    {"NVIDIA H100 80GB HBM3": {false, true, true}, "NVIDIA L4": {false, true, true}},
		"hybrid": {"NVIDIA H100 80GB HBM3": {true, true, true}, "NVIDIA L4": {false, true, true}},
	} {
		p := formats.NosProfile(way)
		require.NoError(t, p.Err)
		assert.Equal(t, "nos-"+way, p.Name)
		assert.Equal(t, way, p.Original)
		assert.Equal(t, way == "hybrid", len(p.Notes) > 0)
		parsed, err := profile.FromRules(p.Name, p.Spec.Rules)
		require.NoError(t, err)
		desired, err := parsed.Resolve(gpus, nil)
		require.NoError(t, err)
		for i := range gpus {
			w, ok := want[gpus[i].ProductName]
			if !ok {
				continue
			}
			d := desired[gpus[i].PCIAddress]
			partitions := false
			for _, p := range gpus[i].Placements {
				partitions = partitions || p.Type == gpu.TypeMIG && d.Layout.Offers(p)
			}
			got := [3]bool{partitions, d.Layout.Offers(gpu.Placement{Type: gpu.TypeGPU}), d.Shared && d.Strategy == gpu.MPS}
			assert.Equal(t, w, got, "%s on %s", way, gpus[i].ProductName)
		}
	}
	require.EqualError(t, formats.NosProfile("MIG").Err, `unknown nos partitioning mode "MIG": use mig, mps or hybrid`)
}
