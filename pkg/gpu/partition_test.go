package gpu_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/pkg/gpu"
)

func TestPlacementByName(t *testing.T) {
	g := h100()
	for _, want := range g.Placements {
		got, ok := g.Placement(want.Name())
		require.True(t, ok, want.Name())
		assert.Equal(t, want, got)
	}
	for _, name := range []string{"", "gpu-0000-c2-00-0", "gpu-0000-c1-00-0-mig-1g-10gb-7", "gpu-0000-c1-00-0-mig-1g-10gb"} {
		_, ok := g.Placement(name)
		assert.False(t, ok, name)
	}
}

// TestPlacementSurvivesJSON: the ledger keeps placements as JSON.
func TestPlacementSurvivesJSON(t *testing.T) {
	for _, want := range h100().Placements {
		want.Engines = map[string]int64{"decoders": 1}
		want.Memory, want.ComputeUnits, want.Isolation = 9984<<20, 16, gpu.IsolationHardware
		data, err := json.Marshal(want)
		require.NoError(t, err)
		var got gpu.Placement
		require.NoError(t, json.Unmarshal(data, &got))
		assert.Equal(t, want, got)
		assert.Equal(t, want.Name(), got.Name())
	}
}

func TestOverlaps(t *testing.T) {
	const gpuID, other = "0000:c1:00.0", "0000:c2:00.0"
	mig := func(address, profile string, start, size int) gpu.Placement {
		return gpu.Placement{GPU: address, Type: gpu.TypeMIG, Profile: profile, Start: start, Size: size}
	}
	whole := gpu.Placement{GPU: gpuID, Type: gpu.TypeGPU}
	for _, test := range []struct {
		name        string
		start, size int
		placement   gpu.Placement
		want        bool
	}{
		{"the same piece", 2, 2, mig(gpuID, "2g.20gb", 2, 2), true},
		{"another profile at the same place", 2, 2, mig(gpuID, "1g.20gb", 2, 2), true},
		{"inside", 3, 1, mig(gpuID, "2g.20gb", 2, 2), true},
		{"around", 0, 8, mig(gpuID, "2g.20gb", 2, 2), true},
		{"over the left end", 1, 2, mig(gpuID, "2g.20gb", 2, 2), true},
		{"over the right end", 3, 2, mig(gpuID, "2g.20gb", 2, 2), true},
		{"left neighbour", 1, 1, mig(gpuID, "2g.20gb", 2, 2), false},
		{"right neighbour", 4, 4, mig(gpuID, "2g.20gb", 2, 2), false},
		{"far away", 7, 1, mig(gpuID, "1g.10gb", 0, 1), false},
		{"the same place of another GPU", 2, 2, mig(other, "2g.20gb", 2, 2), false},
		{"the whole GPU", 7, 1, whole, true},
		{"a share of the whole GPU", 7, 1, gpu.ShareOf(whole, gpu.ByMemory, gpu.Sharing{}), true},
		{"the whole of another GPU", 7, 1, gpu.Placement{GPU: other, Type: gpu.TypeGPU}, false},
	} {
		partition := gpu.Partition{GPU: gpuID, Type: gpu.TypeMIG, Profile: "2g.20gb", Start: test.start, Size: test.size}
		assert.Equal(t, test.want, partition.Overlaps(test.placement), test.name)
	}

	// Partitions of one mode share nothing, those of two modes never exist at once.
	xcp := func(mode string, index int) gpu.Placement {
		return gpu.Placement{GPU: gpuID, Type: gpu.TypeXCP, Profile: mode, Start: index, Size: 1}
	}
	partition := gpu.Partition{GPU: gpuID, Type: gpu.TypeXCP, Profile: "dpx", Start: 1, Size: 1}
	assert.True(t, partition.Overlaps(xcp("dpx", 1)), "the same piece")
	assert.False(t, partition.Overlaps(xcp("dpx", 0)), "another piece of the mode")
	assert.True(t, partition.Overlaps(xcp("cpx", 1)), "another mode, the same index")
	assert.True(t, partition.Overlaps(xcp("cpx", 6)), "another mode")
	assert.True(t, partition.Overlaps(whole), "the whole GPU")
}

func TestIs(t *testing.T) {
	partition := gpu.Partition{GPU: "0000:c1:00.0", Type: gpu.TypeMIG, Profile: "1g.10gb", Start: 3, Size: 1, UUID: "MIG-1", ID: "GI 9"}
	same := gpu.Placement{GPU: "0000:c1:00.0", Type: gpu.TypeMIG, Profile: "1g.10gb", Start: 3, Size: 1, Memory: 9984 << 20}
	assert.True(t, partition.Is(same))
	assert.True(t, partition.Is(gpu.ShareOf(same, gpu.ByMemory, gpu.Sharing{})))
	for name, change := range map[string]func(*gpu.Placement){
		"gpu":      func(p *gpu.Placement) { p.GPU = "0000:c2:00.0" },
		"type":     func(p *gpu.Placement) { p.Type = gpu.TypeGPU },
		"profile":  func(p *gpu.Placement) { p.Profile = "1g.10gb+me" },
		"position": func(p *gpu.Placement) { p.Start = 4 },
	} {
		changed := same
		change(&changed)
		assert.False(t, partition.Is(changed), "another %s", name)
	}
}
