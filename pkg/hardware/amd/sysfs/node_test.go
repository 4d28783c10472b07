package sysfs

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// mi300xNode2 is the properties of node 2 of ROCm/k8s-device-plugin
// testdata/topo-mi300-cpx, without those that say the same of every GPU.
const mi300xNode2 = `cpu_cores_count 0
simd_count 152
mem_banks_count 1
caches_count 113
array_count 4
simd_arrays_per_engine 1
cu_per_simd_array 10
simd_per_cu 4
gfx_target_version 90402
vendor_id 4098
device_id 29857
location_id 1280
domain 0
drm_render_minor 128
hive_id 15188982192727901047
num_sdma_engines 2
num_cp_queues 24
max_engine_clk_fcompute 2100
local_mem_size 0
capability 2893521536
unique_id 16404946649897475633
num_xcc 1
`

func TestParseProperties(t *testing.T) {
	n, ok := parseProperties(mi300xNode2).node(2, "24247")
	require.True(t, ok)
	assert.Equal(t, Node{
		Number: 2, GPUID: "24247", Minor: 128, location: 1280,
		ComputeUnits: 38, // not 40, which counts those that are fused off
		XCCs:         1, GFX: 90402, device: 29857, banks: 1, Hive: 15188982192727901047,
	}, n)
	assert.Equal(t, []string{"gfx942", "gfx90a", "gfx1100"}, []string{n.Architecture(), Node{GFX: 90010}.Architecture(), Node{GFX: 110000}.Architecture()})

	n, ok = parseProperties(strings.Replace(mi300xNode2, "num_xcc 1\n", "", 1)).node(2, "1")
	assert.True(t, ok, "an older kernel")
	assert.Equal(t, 1, n.XCCs)

	p := parseProperties("a 1\nb\n\nc x\nd 2 3\n e\t18446744073709551615 \nf -1\ng 18446744073709551616")
	assert.Equal(t, properties{"a": 1, "e": 1<<64 - 1}, p)
	for name, text := range map[string]string{
		"a processor":           "cpu_cores_count 96\nsimd_count 0\n",
		"no render node":        strings.Replace(mi300xNode2, "minor 128", "minor 0", 1),
		"a division by zero":    strings.Replace(mi300xNode2, "simd_per_cu 4", "simd_per_cu 0", 1),
		"a number beyond sense": strings.Replace(mi300xNode2, "simd_count 152", "simd_count 18446744073709551615", 1),
		"a node in the making":  strings.Replace(mi300xNode2, "num_xcc 1", "num_xcc 0", 1),
		"nothing":               "",
	} {
		_, ok := parseProperties(text).node(2, "1")
		assert.False(t, ok, name)
	}
}

func FuzzParseProperties(f *testing.F) {
	f.Add(mi300xNode2)
	f.Add("simd_count 1\nsimd_per_cu 9\ndrm_render_minor 4294967296\n")
	f.Fuzz(func(t *testing.T, text string) {
		n, ok := parseProperties(text).node(7, "1")
		if !ok {
			return
		}
		require.Positive(t, n.Minor)
		require.Positive(t, n.XCCs)
		require.GreaterOrEqual(t, n.ComputeUnits, int64(0))
		require.GreaterOrEqual(t, n.banks, 0)
		require.NotEmpty(t, n.Architecture())
		a := address{domain: n.domain, bus: n.location >> 8 & 0xff, device: n.location >> 3 & 0x1f}
		require.Len(t, (&Topology{Nodes: []Node{n}}).Of(a), 1, "a node is found where it says it is")
		found, err := Indexes([]Node{n}, n.Minor, 8)
		require.True(t, err != nil || found[0] >= 0 && found[0] < 8)
	})
}
