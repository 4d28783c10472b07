package amd

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
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
	assert.Equal(t, node{
		number: 2, gpuID: "24247", minor: 128, location: 1280,
		computeUnits: 38, // not 40, which counts those that are fused off
		xccs:         1, gfx: 90402, device: 29857, banks: 1, hive: 15188982192727901047,
	}, n)
	assert.Equal(t, "gfx942", n.architecture())

	n, ok = parseProperties(strings.Replace(mi300xNode2, "num_xcc 1\n", "", 1)).node(2, "1")
	assert.True(t, ok, "an older kernel")
	assert.Equal(t, 1, n.xccs)

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
		require.Positive(t, n.minor)
		require.Positive(t, n.xccs)
		require.GreaterOrEqual(t, n.computeUnits, int64(0))
		require.GreaterOrEqual(t, n.banks, 0)
		require.NotEmpty(t, n.architecture())
		a := address{domain: n.domain, bus: n.location >> 8 & 0xff, device: n.location >> 3 & 0x1f}
		require.Len(t, (&topology{nodes: []node{n}}).of(a), 1, "a node is found where it says it is")
		found, err := indexes([]node{n}, n.minor, 8)
		require.True(t, err != nil || found[0] >= 0 && found[0] < 8)
	})
}

func topologyOf(t *testing.T, d *Driver) (*topology, error) {
	t.Helper()
	return through(t.Context(), d.host, d.cfg.Files, d.readTopology)
}

func TestTopologyThatChangesWhileItIsRead(t *testing.T) {
	files, d := onPaper(t, mi300xCPX())
	files.onRead = func(name string) {
		if name == nodesDir+"/4/properties" {
			files.mu.Lock()
			files.onRead = nil
			files.mu.Unlock()
			files.replace(mi300xSPX())
		}
	}
	top, err := topologyOf(t, d)
	require.NoError(t, err)
	require.Len(t, top.nodes, 1, "not some of the old ones and some of the new")
	assert.EqualValues(t, 304, top.nodes[0].computeUnits)

	changes := 0
	files.onRead = func(name string) {
		if name == nodesDir+"/2/properties" {
			changes++
			files.set(topologyDir+"/generation_id", fmt.Sprint("another ", changes))
		}
	}
	_, err = topologyOf(t, d)
	assert.ErrorContains(t, err, "changes faster than it can be read")
}

func TestRecentTopologyIsReadAgainAfterAChange(t *testing.T) {
	files, d := onPaper(t, mi300xCPX())
	recent := func() *topology {
		top, err := through(t.Context(), d.host, d.cfg.Files, d.recentTopology)
		require.NoError(t, err)
		return top
	}
	first := recent()
	assert.Len(t, first.nodes, 8)
	assert.Same(t, first, recent())
	files.replace(mi300xDPX())
	assert.Len(t, recent().nodes, 2)
}

func TestTopologyThatIsHidden(t *testing.T) {
	files, d := onPaper(t, mi300xCPX())
	files.fails["read "+nodesDir+"/3/properties"] = unix.EPERM
	_, err := topologyOf(t, d)
	assert.ErrorIs(t, err, unix.EPERM)
	assert.ErrorContains(t, err, "the plugin must be privileged")
}

func TestMemoryOfANode(t *testing.T) {
	files, d := onPaper(t, mi300xCPX())
	memory := func(banks ...string) (int64, error) {
		for i, text := range banks {
			files.set(fmt.Sprintf("%s/2/mem_banks/%d/properties", nodesDir, i), text)
		}
		return through(t.Context(), d.host, d.cfg.Files, func(task *task) (int64, error) {
			return task.memoryOf(node{number: 2, banks: len(banks)})
		})
	}
	n, err := memory("heap_type 1\nsize_in_bytes 10\n", "heap_type 2\nsize_in_bytes 5\n", "heap_type 0\nsize_in_bytes 100\n")
	require.NoError(t, err)
	assert.EqualValues(t, 15, n, "the GPU's own, not the machine's")
	_, err = memory("heap_type 1\nsize_in_bytes 18446744073709551615\n")
	assert.ErrorContains(t, err, "which cannot be")
	files.remove(nodesDir + "/2/mem_banks")
	_, err = through(t.Context(), d.host, d.cfg.Files, func(task *task) (int64, error) { return task.memoryOf(node{number: 2, banks: 1}) })
	assert.Error(t, err)
}

func TestHungFileHoldsOnlyItsGPU(t *testing.T) {
	other := mi308xCPX(1, 136)
	files, d := onPaper(t, mi300xCPX(), other)
	release := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	files.onRead = func(name string) {
		if name == devicesDir+"/0000:05:00.0/"+computeFile {
			cancel()
			<-release
		}
	}
	_, err := d.Live(ctx, "0000:05:00.0")
	require.ErrorIs(t, err, context.Canceled)
	assert.ErrorContains(t, err, "reading "+devicesDir+"/0000:05:00.0/"+computeFile+" on GPU 0000:05:00.0 has not returned")
	_, err = d.Live(t.Context(), "0000:05:00.0")
	assert.ErrorContains(t, err, "has not returned", "who comes later is told at once")
	_, err = d.Live(t.Context(), other.address)
	assert.NoError(t, err, "other GPUs go on")

	close(release)
	require.NoError(t, d.gateOf("0000:05:00.0").Settle(t.Context()))
	_, err = d.Live(t.Context(), "0000:05:00.0")
	assert.NoError(t, err)
}
