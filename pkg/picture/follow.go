package picture

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tranche-dev/tranche/pkg/cluster"
	"github.com/tranche-dev/tranche/pkg/terminal"
)

// modes says in which modes the node's GPUs are, where one word says it of all, or
// where only their memory modes are known.
func modes(n cluster.Node) string {
	if mode, same := hardwareMode(n); same && mode != "" {
		return mode
	}
	return strings.Join(memoryModes(n), ", ")
}

// hardwareMode is that of the first GPU; same: it is that of all.
func hardwareMode(n cluster.Node) (mode string, same bool) {
	if len(n.GPUs) == 0 {
		return "", true
	}
	mode = n.GPUs[0].HardwareMode
	return mode, !slices.ContainsFunc(n.GPUs, func(c cluster.GPU) bool { return c.HardwareMode != mode })
}

// profileLines says below the node's head what is to be known of its switch.
func (d *drawing) profileLines(n cluster.Node) {
	if n.Profile == nil {
		return
	}
	for _, s := range n.Profile.Sentences(d.summary.Now) {
		st := terminal.Normal
		if s.Warning {
			st = terminal.Yellow
		}
		d.Wrap("  ", s.Text, st)
	}
}

// gpuModes says in which mode a GPU is, unless the node's head does, and what
// becomes of it.
func (d *drawing) gpuModes(c cluster.GPU, sayMode bool) {
	if m := c.Mode; m != nil && m.Of > 1 {
		d.detail("", terminal.Text(fmt.Sprintf("in %s, %d of %d held", m.Name, m.Held, m.Of), terminal.Normal))
	} else if sayMode && c.HardwareMode != "" {
		d.detail("", terminal.Text(c.HardwareMode, terminal.Normal))
	}
	if c.Problem != "" {
		d.detail("problem: ", terminal.Text(c.Problem, terminal.Red))
	}
	if c.Change != "" {
		d.detail("changes: ", terminal.Text(c.Change, terminal.Yellow))
	}
	if c.Pending != "" {
		d.detail("pending: ", terminal.Text(c.Pending, terminal.Normal))
	}
}
