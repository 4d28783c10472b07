package sysfs

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// nodesAt are nodes by location_id and render minor, in turn.
func nodesAt(pairs ...int) []Node {
	var nodes []Node
	for i := 0; i < len(pairs); i += 2 {
		nodes = append(nodes, Node{Number: i/2 + 2, location: uint64(pairs[i]), Minor: pairs[i+1]})
	}
	return nodes
}

func TestIndexes(t *testing.T) {
	for _, test := range []struct {
		name  string
		nodes []Node
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
		got, err := Indexes(test.nodes, test.first, test.count)
		require.NoError(t, err, test.name)
		assert.Equal(t, test.want, got, test.name)
	}
	for name, nodes := range map[string][]Node{
		"more than the mode has":         nodesAt(0x500, 128, 0x501, 129, 0x502, 130, 0x503, 131, 0x504, 132),
		"another order of render nodes":  nodesAt(0x501, 128, 0x500, 129, 0x502, 130, 0x503, 131),
		"two of one index":               nodesAt(0x500, 128, 0x501, 129, 0x501, 130, 0x503, 131),
		"a render node before the first": nodesAt(0x500, 120, 0x500, 121),
	} {
		_, err := Indexes(nodes, 128, 4)
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
		found, err := Indexes([]Node{{location: a, Minor: m}, {location: b, Minor: n}}, first, count)
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
	a, err := ParseAddress("0001:c1:1f.7")
	require.NoError(t, err)
	assert.Equal(t, address{domain: 1, bus: 0xc1, device: 0x1f, function: 7}, a)
	for _, bad := range []string{"card0", "0000:00:20.0"} {
		_, err = ParseAddress(bad)
		assert.Error(t, err, bad)
	}
}

func FuzzParseAddress(f *testing.F) {
	f.Add("0000:c1:00.0")
	f.Add("10000:C1:1f.7")
	f.Add("0000:00:20.0")
	f.Fuzz(func(t *testing.T, text string) {
		a, err := ParseAddress(text)
		if err == nil {
			require.Less(t, a.bus, uint64(0x100))
			require.Less(t, a.device, uint64(0x20))
			require.Less(t, a.function, uint64(8))
		}
	})
}

func TestNodesOfAGPU(t *testing.T) {
	top := Topology{Nodes: []Node{
		{Minor: 130, location: 0x500}, {Minor: 129, location: 0x2700}, {Minor: 128, location: 0x501}, {Minor: 131, location: 0x508}, {Minor: 132, location: 0x510}, {Minor: 133, domain: 1, location: 0x500},
	}}
	of := top.Of(address{bus: 5})
	assert.Equal(t, []Node{top.Nodes[2], top.Nodes[0]}, of, "in the order of their render nodes")
	assert.Equal(t, top.Nodes[2:3], top.Of(address{bus: 5, function: 1}))
	assert.Equal(t, top.Nodes[4:5], top.Of(address{bus: 5, device: 2}))
}
