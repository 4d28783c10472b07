package profile

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/publish/models"
)

// gpuOf is the first GPU of a shipped inventory.
func gpuOf(t testing.TB, name string) *gpu.GPU {
	t.Helper()
	inv, err := models.LoadInventory(name)
	require.NoError(t, err)
	return &inv.Hardware("node")[0]
}

// spots are "profile@start" of placements.
func spots(layout []gpu.Placement) []string {
	out := make([]string, len(layout))
	for i, p := range layout {
		out[i] = fmt.Sprintf("%s@%d", p.Profile, p.Start)
	}
	return out
}

// existing are partitions that exist, of "profile", start, size.
func existing(g *gpu.GPU, profile string, starts ...int) (all []gpu.Partition) {
	for _, p := range g.WithMIG(gpu.MIGOn).Placements {
		if p.Profile == profile && slices.Contains(starts, p.Start) {
			all = append(all, gpu.Partition{GPU: p.GPU, Type: p.Type, Profile: p.Profile, Start: p.Start, Size: p.Size, Complete: true})
		}
	}
	return all
}

func TestLayouts(t *testing.T) {
	for name, tt := range map[string]struct {
		inventory string
		parts     []part
		want      []string
	}{
		"one":              {"h100x8", []part{{"1g.10gb", 1}}, []string{"1g.10gb@6"}},
		"all of a size":    {"h100x8", []part{{"1g.10gb", 0}}, []string{"1g.10gb@6", "1g.10gb@5", "1g.10gb@4", "1g.10gb@3", "1g.10gb@2", "1g.10gb@1", "1g.10gb@0"}},
		"balanced":         {"h100x8", []part{{"1g.10gb", 2}, {"2g.20gb", 1}, {"3g.40gb", 1}}, []string{"1g.10gb@3", "1g.10gb@2", "2g.20gb@0", "3g.40gb@4"}},
		"without memory":   {"h100x8", []part{{"1g", 2}, {"2g", 1}, {"3g", 1}}, []string{"1g.10gb@3", "1g.10gb@2", "2g.20gb@0", "3g.40gb@4"}},
		"the rest":         {"h100x8", []part{{"1g", 0}, {"3g", 1}}, []string{"1g.10gb@3", "1g.10gb@2", "1g.10gb@1", "1g.10gb@0", "3g.40gb@4"}},
		"of one profile":   {"h100x8", []part{{"3g.40gb", 1}, {"3g", 0}}, []string{"3g.40gb@4", "3g.40gb@0"}},
		"with media":       {"h100x8", []part{{"1g.10gb+me", 1}, {"1g.10gb", 0}}, []string{"1g.10gb@6", "1g.10gb@5", "1g.10gb@4", "1g.10gb@3", "1g.10gb@2", "1g.10gb@1", "1g.10gb+me@0"}},
		"the whole GPU":    {"h100x8", []part{{"7g", 1}}, []string{"7g.80gb@0"}},
		"A30":              {"a30x4", []part{{"1g", 2}, {"2g", 1}}, []string{"1g.6gb@3", "1g.6gb@2", "2g.12gb@0"}},
		"RTX PRO":          {"rtxpro6000x4", []part{{"1g", 2}, {"2g", 1}}, []string{"1g.24gb@9", "1g.24gb@6", "2g.48gb@0"}},
		"all media":        {"rtxpro6000x4", []part{{"1g.24gb+me.all", 1}, {"1g.24gb-me", 0}}, []string{"1g.24gb+me.all@9", "1g.24gb-me@6", "1g.24gb-me@3", "1g.24gb-me@0"}},
		"out of MIG mode":  {"a100-80x8-mig-off", []part{{"1g", 7}}, []string{"1g.10gb@6", "1g.10gb@5", "1g.10gb@4", "1g.10gb@3", "1g.10gb@2", "1g.10gb@1", "1g.10gb@0"}},
		"in MIG mode":      {"a100-80x8", []part{{"4g", 1}, {"3g", 1}}, []string{"3g.40gb@4", "4g.40gb@0"}},
		"nothing":          {"h100x8", nil, []string{}},
		"same profile":     {"h100x8", []part{{"1g.10gb", 1}, {"1g", 1}}, []string{"1g.10gb@6", "1g.10gb@5"}},
		"nothing to spare": {"h100x8", []part{{"1g.20gb", 4}}, []string{"1g.20gb@6", "1g.20gb@4", "1g.20gb@2", "1g.20gb@0"}},
	} {
		t.Run(name, func(t *testing.T) {
			g := gpuOf(t, tt.inventory)
			got, err := pack(g, tt.parts, nil)
			require.NoError(t, err)
			assert.ElementsMatch(t, tt.want, spots(got))
			slices.Reverse(tt.parts)
			again, err := pack(g, tt.parts, nil)
			require.NoError(t, err)
			assert.Equal(t, got, again, "whatever the order")
		})
	}
}

func TestWhatIsThereStays(t *testing.T) {
	for name, tt := range map[string]struct {
		parts []part
		there func(*gpu.GPU) []gpu.Partition
		want  []string
	}{
		"one of one": {[]part{{"1g", 1}}, func(c *gpu.GPU) []gpu.Partition { return existing(c, "1g.10gb", 2) }, []string{"1g.10gb@2"}},
		"some":       {[]part{{"1g", 3}}, func(c *gpu.GPU) []gpu.Partition { return existing(c, "1g.10gb", 0, 4) }, []string{"1g.10gb@0", "1g.10gb@4", "1g.10gb@6"}},
		"in the way": {[]part{{"3g", 2}}, func(c *gpu.GPU) []gpu.Partition { return existing(c, "1g.10gb", 0, 4) }, []string{"3g.40gb@0", "3g.40gb@4"}},
		// The 1g at 2 can stay, the one at 5 cannot: 3g is at 4, or the 4g at 0 has no room.
		"as many as can": {[]part{{"3g", 1}, {"1g", 2}}, func(c *gpu.GPU) []gpu.Partition { return existing(c, "1g.10gb", 0, 2, 5) }, []string{"1g.10gb@0", "1g.10gb@2", "3g.40gb@4"}},
		"more than wanted": {[]part{{"1g", 1}}, func(c *gpu.GPU) []gpu.Partition { return existing(c, "1g.10gb", 0, 1, 2) },
			[]string{"1g.10gb@2"}},
		"room before what is there": {[]part{{"1g.20gb", 0}}, func(c *gpu.GPU) []gpu.Partition { return existing(c, "1g.10gb", 0, 1, 2) },
			[]string{"1g.20gb@0", "1g.20gb@2", "1g.20gb@4", "1g.20gb@6"}},
		"half made": {[]part{{"1g", 1}}, func(c *gpu.GPU) []gpu.Partition {
			half := existing(c, "1g.10gb", 2)
			half[0].Complete = false
			return half
		}, []string{"1g.10gb@6"}},
		"of another GPU": {[]part{{"1g", 1}}, func(c *gpu.GPU) []gpu.Partition {
			other := existing(c, "1g.10gb", 2)
			other[0].GPU = "0000:ff:00.0"
			return other
		}, []string{"1g.10gb@6"}},
	} {
		t.Run(name, func(t *testing.T) {
			g := gpuOf(t, "h100x8")
			got, err := pack(g, tt.parts, tt.there(g))
			require.NoError(t, err)
			assert.ElementsMatch(t, tt.want, spots(got))
		})
	}
}

func TestMisfits(t *testing.T) {
	for name, tt := range map[string]struct {
		inventory string
		parts     []part
		want      string
	}{
		"too many":         {"h100x8", []part{{"1g.10gb", 8}}, "1g.10gb x 8 do not fit: at most 7"},
		"by short name":    {"h100x8", []part{{"1g", 8}}, "1g.10gb x 8 do not fit: at most 7"},
		"beside":           {"h100x8", []part{{"3g.40gb", 1}, {"1g", 5}}, "1g.10gb x 5 do not fit beside 3g.40gb x 1: at most 4"},
		"no room":          {"h100x8", []part{{"3g.40gb", 2}, {"1g", 1}}, "1g.10gb x 1 do not fit beside 3g.40gb x 2: there is room for none"},
		"no room for more": {"h100x8", []part{{"1g", 0}, {"7g", 1}}, "1g.10gb does not fit beside 7g.80gb x 1: there is room for none"},
		"of one profile":   {"h100x8", []part{{"1g", 4}, {"1g.10gb", 4}}, "1g.10gb x 4 do not fit beside 1g.10gb x 4: at most 3"},
		"engines":          {"h100x8", []part{{"1g.10gb+me", 2}}, "1g.10gb+me x 2 do not fit: at most 1"},
		"the second":       {"h100x8", []part{{"2g", 1}, {"4g", 2}, {"1g", 9}}, "4g.40gb x 2 do not fit beside 2g.20gb x 1: at most 1"},
		"unknown": {"h100x8", []part{{"1g.5gb", 1}},
			"has no profile 1g.5gb; it has 1g.10gb, 1g.10gb+me, 1g.20gb, 2g.20gb, 3g.40gb, 4g.40gb, 7g.80gb"},
		"unknown size": {"a30x4", []part{{"3g", 1}}, "has no profile 3g; it has 1g.6gb, 1g.6gb+me, 2g.12gb, 2g.12gb+me, 4g.24gb"},
		"not a name":   {"a30x4", []part{{"", 1}}, "has no profile ; it has"},
		"no MIG":       {"l4x4", []part{{"1g", 1}}, "NVIDIA L4 does not support MIG"},
		"AMD":          {"mi300x8", []part{{"cpx", 1}}, "AMD Instinct MI300X OAM does not support MIG"},
		"negative":     {"h100x8", []part{{"1g", -1}}, "1g x -1: a number of partitions is at least 1"},
		"two rests":    {"h100x8", []part{{"1g", 0}, {"2g", 0}}, "both 1g and 2g are to fill the GPU: give one of them a number"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := pack(gpuOf(t, tt.inventory), tt.parts, nil)
			require.ErrorContains(t, err, tt.want)
			assert.Empty(t, got)
		})
	}
}

func TestProfileNames(t *testing.T) {
	for _, tt := range []struct{ inventory, name, want string }{
		{"h100x8", "1g", "1g.10gb"}, {"h100x8", "1g.20gb", "1g.20gb"}, {"h100x8", "1g.10gb+me", "1g.10gb+me"},
		{"a100-40x8-mig-off", "1g", "1g.5gb"}, {"a30x4", "2g", "2g.12gb"}, {"rtxpro6000x4", "1g", "1g.24gb"},
		{"rtxpro6000x4", "4g", "4g.96gb"}, {"h200x8", "7g", "7g.141gb"},
	} {
		got, err := fullProfile(gpuOf(t, tt.inventory), tt.name)
		require.NoError(t, err)
		assert.Equal(t, tt.want, got)
	}
	for _, name := range []string{"", "g", "1", "1g.", "0g", "1G", "11g", "1g+me", "spx"} {
		_, err := fullProfile(gpuOf(t, "h100x8"), name)
		require.Error(t, err, name)
	}
}
