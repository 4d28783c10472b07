package picture

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/cluster"
)

// modes describes the modes of the node's GPUs if all have the same, or if only memory modes are
// known.
func modes(n cluster.Node) string {
	if mode, same := hardwareMode(n); same && mode != (v1beta1.GPUModes{}) {
		return cluster.ModeText(mode)
	}
	return strings.Join(memoryModes(n), ", ")
}

// hardwareMode returns the mode of the first GPU; same reports whether all have it.
func hardwareMode(n cluster.Node) (mode v1beta1.GPUModes, same bool) {
	if len(n.GPUs) == 0 {
		return mode, true
	}
	mode = n.GPUs[0].HardwareMode
	return mode, !slices.ContainsFunc(n.GPUs, func(g cluster.GPU) bool { return g.HardwareMode != mode })
}

// profileLines describes the switch of the node, below its heading.
func (d *drawing) profileLines(n cluster.Node) {
	if n.Profile == nil {
		return
	}
	for _, s := range n.Profile.Sentences(d.summary.Now) {
		st := Normal
		if s.Warning {
			st = Yellow
		}
		d.Wrap("  ", s.Text, st)
	}
}

// gpuMode describes the mode of a GPU, unless the node's heading does.
func (d *drawing) gpuMode(g cluster.GPU, sayMode bool) {
	if m := g.Mode; m != nil && m.Of > 1 {
		d.detail("", Text(fmt.Sprintf("in %s, %d of %d held", m.Name, m.Held, m.Of), Normal))
	} else if sayMode && g.HardwareMode != (v1beta1.GPUModes{}) {
		d.detail("", Text(cluster.ModeText(g.HardwareMode), Normal))
	}
}
