package sysfs_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware/amd/sysfs"
	"github.com/tranche-dev/tranche/test/amdtest"
)

func TestLiveByMode(t *testing.T) {
	for _, test := range []struct {
		gpu  amdtest.GPU
		want []string
	}{
		{amdtest.MI300XSPX(), nil},
		{amdtest.MI300XDPX(), []string{"dpx-0 renderD128", "dpx-1 renderD129"}},
		{amdtest.MI308XCPX(1, 136), []string{"cpx-0 renderD136", "cpx-1 renderD137", "cpx-2 renderD138", "cpx-3 renderD139"}},
	} {
		_, m := machineOf(t, test.gpu)
		live, err := m.Live(t.Context(), test.gpu.Address)
		require.NoError(t, err)
		var got []string
		for _, p := range live {
			assert.Equal(t, gpu.TypeXCP, p.Type)
			assert.True(t, p.Complete)
			assert.Empty(t, p.UUID)
			got = append(got, p.Name()[len(gpu.NameOf(p.GPU))+1:]+" "+p.ID)
		}
		assert.Equal(t, test.want, got, test.gpu.Compute)
	}
}

// Of 64 partitions only 63 have a render node when the board's own display driver
// takes one.
func TestOneOfManyPartitionsIsMissing(t *testing.T) {
	c := amdtest.MI300XCPX()
	c.Nodes, c.Minors = c.Nodes[:7], 7
	_, m := machineOf(t, c)
	g := gpusOf(t, m)[0]
	assert.EqualValues(t, 304, amdtest.Placement(t, g, "").ComputeUnits, "what the GPU is does not depend on it")
	live, err := m.Live(t.Context(), c.Address)
	require.NoError(t, err)
	require.Len(t, live, 8)
	assert.True(t, live[6].Complete)
	assert.False(t, live[7].Complete)
	assert.Equal(t, "no KFD node", live[7].ID)
}

func TestMissing(t *testing.T) {
	node := sysfs.Node{GPUID: "51110"}
	live := sysfs.Live{Partitions: []sysfs.Partition{{Index: 0, Node: &node}, {Index: 1}, {Index: 2}}}
	assert.Equal(t, []int{1, 2}, live.Missing())
	assert.Equal(t, []sysfs.Node{node}, live.Nodes())
	assert.Equal(t, []string{"51110"}, live.GPUIDs())
}

func TestModeThatTheChipDoesNotHave(t *testing.T) {
	c := amdtest.MI300XCPX()
	c.Compute = "TPX"
	c.Nodes[0].XCCs = 1
	_, m := machineOf(t, c)
	_, err := m.Live(t.Context(), c.Address)
	assert.Error(t, err)
}

func TestRecentTopologyIsReadAgainAfterAChange(t *testing.T) {
	files, m := machineOf(t, amdtest.MI300XCPX())
	recent := func() *sysfs.Topology {
		top, err := m.RecentTopology(t.Context())
		require.NoError(t, err)
		return top
	}
	first := recent()
	assert.Len(t, first.Nodes, 8)
	assert.Same(t, first, recent())
	files.Replace(amdtest.MI300XDPX())
	assert.Len(t, recent().Nodes, 2)
}
