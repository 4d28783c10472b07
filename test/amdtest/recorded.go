package amdtest

import (
	"embed"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

//go:embed testdata/*.txt
var recordings embed.FS

// Recorded returns the GPUs of a real machine whose KFD nodes were recorded, with each node's real
// numbers: mi300x-cpx, whose last GPU has no render node for its last partition, or mi308x-cpx. The
// files of the GPUs themselves were not recorded: they are those of like.
func Recorded(t *testing.T, name string, like GPU) []GPU {
	t.Helper()
	text, err := recordings.ReadFile("testdata/" + name + ".txt")
	require.NoError(t, err)
	var all []GPU
	var last uint64
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		var n Node
		var unique uint64
		_, err := fmt.Sscan(line, &n.Number, &n.SIMD, &n.XCCs, &n.domain, &n.Location, &n.Minor, &unique)
		require.NoError(t, err, line)
		if unique != last {
			g := like
			g.Address = fmt.Sprintf("%04x:%02x:%02x.0", n.domain, n.Location>>8, n.Location>>3&0x1f)
			g.First, g.Nodes, last = n.Minor, nil, unique
			all = append(all, g)
		}
		g := &all[len(all)-1]
		n.GFX, n.Bytes = like.Nodes[len(g.Nodes)].GFX, like.Nodes[len(g.Nodes)].Bytes
		g.Nodes = append(g.Nodes, n)
	}
	if g := &all[len(all)-1]; len(g.Nodes) < len(like.Nodes) {
		g.Minors = len(g.Nodes)
	}
	return all
}
