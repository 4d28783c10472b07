package amd

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/pkg/gpu"
)

// nodesAt are nodes by location_id and render minor, in turn.
func nodesAt(pairs ...int) []node {
	var nodes []node
	for i := 0; i < len(pairs); i += 2 {
		nodes = append(nodes, node{number: i/2 + 2, location: uint64(pairs[i]), minor: pairs[i+1]})
	}
	return nodes
}

func TestIndexes(t *testing.T) {
	for _, test := range []struct {
		name  string
		nodes []node
		first int
		count int
		want  []int
	}{
		{"lowest bits", nodesAt(0x500, 128, 0x501, 129, 0x502, 130, 0x503, 131), 128, 4, []int{0, 1, 2, 3}},
		{"highest bits", nodesAt(0x500, 128, 0x10000500, 129, 0x20000500, 130, 0x30000500, 131), 128, 4, []int{0, 1, 2, 3}},
		{"second GPU", nodesAt(0x2700, 136, 0x2701, 137), 136, 2, []int{0, 1}},
		{"one is missing", nodesAt(0x500, 128, 0x502, 130), 128, 4, []int{0, 2}},
		{"the first is missing", nodesAt(0x10000500, 129, 0x20000500, 130), 128, 4, []int{1, 2}},
		{"another driver took a minor in between", nodesAt(0x500, 128, 0x501, 130, 0x502, 131), 128, 3, []int{0, 1, 2}},
		{"nothing in location_id", nodesAt(0x500, 128, 0x500, 129), 128, 2, []int{0, 1}},
		{"the whole GPU", nodesAt(0x500, 128), 128, 1, []int{0}},
		{"the whole GPU at function 2", nodesAt(0x502, 128), 128, 1, []int{0}},
	} {
		got, err := indexes(test.nodes, test.first, test.count)
		require.NoError(t, err, test.name)
		assert.Equal(t, test.want, got, test.name)
	}
	for name, nodes := range map[string][]node{
		"more than the mode has":         nodesAt(0x500, 128, 0x501, 129, 0x502, 130, 0x503, 131, 0x504, 132),
		"another order of render nodes":  nodesAt(0x501, 128, 0x500, 129, 0x502, 130, 0x503, 131),
		"two of one index":               nodesAt(0x500, 128, 0x501, 129, 0x501, 130, 0x503, 131),
		"a render node before the first": nodesAt(0x500, 120, 0x500, 121),
	} {
		_, err := indexes(nodes, 128, 4)
		assert.ErrorContains(t, err, "does not tell its partitions apart", name)
		assert.ErrorContains(t, err, "renderD", name)
	}
}

func FuzzIndexes(f *testing.F) {
	f.Add(uint64(0x500), uint64(0x501), 128, 129, 128, 2)
	f.Add(uint64(0x500), uint64(0x80000500), 128, 129, 128, 8)
	f.Fuzz(func(t *testing.T, a, b uint64, m, n, first, count int) {
		if count < 1 || count > 8 || m >= n {
			return
		}
		found, err := indexes([]node{{location: a, minor: m}, {location: b, minor: n}}, first, count)
		if err != nil {
			return
		}
		require.Len(t, found, 2)
		require.GreaterOrEqual(t, found[0], 0)
		require.Less(t, found[0], found[1], "no two nodes are one partition")
		require.Less(t, found[1], count)
	})
}

func TestParseAddress(t *testing.T) {
	a, err := parseAddress("0001:c1:1f.7")
	require.NoError(t, err)
	assert.Equal(t, address{domain: 1, bus: 0xc1, device: 0x1f, function: 7}, a)
	for _, bad := range []string{"card0", "0000:00:20.0"} {
		_, err = parseAddress(bad)
		assert.Error(t, err, bad)
	}
}

func FuzzParseAddress(f *testing.F) {
	f.Add("0000:c1:00.0")
	f.Add("10000:C1:1f.7")
	f.Add("0000:00:20.0")
	f.Fuzz(func(t *testing.T, text string) {
		a, err := parseAddress(text)
		if err == nil {
			require.Less(t, a.bus, uint64(0x100))
			require.Less(t, a.device, uint64(0x20))
			require.Less(t, a.function, uint64(8))
		}
	})
}

func FuzzRenderMinor(f *testing.F) {
	f.Add("renderD128")
	f.Add("renderD-1")
	f.Fuzz(func(t *testing.T, name string) {
		if minor, ok := renderMinor(name); ok {
			require.GreaterOrEqual(t, minor, 0)
		}
	})
}

func TestLiveByMode(t *testing.T) {
	for _, test := range []struct {
		gpu  paperGPU
		want []string
	}{
		{mi300xSPX(), nil},
		{mi300xDPX(), []string{"dpx-0 renderD128", "dpx-1 renderD129"}},
		{mi308xCPX(1, 136), []string{"cpx-0 renderD136", "cpx-1 renderD137", "cpx-2 renderD138", "cpx-3 renderD139"}},
	} {
		_, d := onPaper(t, test.gpu)
		live, err := d.Live(t.Context(), test.gpu.address)
		require.NoError(t, err)
		var got []string
		for _, p := range live {
			assert.Equal(t, gpu.TypeXCP, p.Type)
			assert.True(t, p.Complete)
			assert.Empty(t, p.UUID)
			got = append(got, p.Name()[len(gpu.NameOf(p.GPU))+1:]+" "+p.ID)
		}
		assert.Equal(t, test.want, got, test.gpu.compute)
	}
}

// Of 64 partitions only 63 have a render node when the board's own display driver
// takes one.
func TestOneOfManyPartitionsIsMissing(t *testing.T) {
	c := mi300xCPX()
	c.nodes, c.minors = c.nodes[:7], 7
	_, d := onPaper(t, c)
	g := inventoryOf(t, d)[0]
	assert.EqualValues(t, 304, placement(t, g, "").ComputeUnits, "what the GPU is does not depend on it")
	live, err := d.Live(t.Context(), c.address)
	require.NoError(t, err)
	require.Len(t, live, 8)
	assert.True(t, live[6].Complete)
	assert.False(t, live[7].Complete)
	assert.Equal(t, "no KFD node", live[7].ID)
}

func TestLocationsThatContradictTheRenderNodesHandOutNothing(t *testing.T) {
	c := mi300xCPX()
	c.nodes[3].location, c.nodes[4].location = c.nodes[4].location, c.nodes[3].location
	_, d := onPaper(t, c)
	_, err := d.Live(t.Context(), c.address)
	require.ErrorContains(t, err, "GPU 0000:05:00.0 in mode CPX: KFD does not tell its partitions apart")
	_, err = d.Inventory(t.Context())
	assert.ErrorContains(t, broken(t, err, c.address), "does not tell its partitions apart")
	_, err = d.Edits(t.Context(), gpu.Placement{GPU: c.address, Type: gpu.TypeXCP, Profile: "cpx", Start: 3})
	assert.Error(t, err)
}

// A kernel that does not count its changes is looked at again where the last look
// does not fit.
func TestSwitchThatKFDDidNotCount(t *testing.T) {
	files, d := onPaper(t, mi300xCPX())
	live, err := d.Live(t.Context(), paperAddress)
	require.NoError(t, err)
	require.Len(t, live, 8)
	for _, c := range []paperGPU{mi300xDPX(), mi300xCPX(), mi300xSPX()} {
		generation := files.files[topologyDir+"/generation_id"]
		files.replace(c)
		files.set(topologyDir+"/generation_id", generation)
		require.NoError(t, d.CheckHealth(t.Context(), paperAddress))
		live, err = d.Live(t.Context(), paperAddress)
		require.NoError(t, err)
		for _, p := range live {
			assert.True(t, p.Complete, "%s of %s", p.Name(), c.compute)
		}
	}
}

func TestModeThatTheChipDoesNotHave(t *testing.T) {
	c := mi300xCPX()
	c.compute = "TPX"
	c.nodes[0].xccs = 1
	_, d := onPaper(t, c)
	_, err := d.Live(t.Context(), c.address)
	assert.Error(t, err)
}
