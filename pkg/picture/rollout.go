package picture

import (
	"fmt"
	"strings"
	"time"

	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/cluster"
	"github.com/tranche-dev/tranche/pkg/cluster/overview"
	"github.com/tranche-dev/tranche/pkg/text"
)

// widestRollout is the widest bar of a rollout, without its borders.
const widestRollout = 60

// maxListed is how many failed nodes, and how many that were set aside, are drawn.
const maxListed = 10

// DrawRollout writes the progress of a plan, with a bar.
func DrawRollout(p *Page, r cluster.Rollout, now time.Time) {
	head := fmt.Sprintf("%s: profile %s", r.Plan, r.Profile)
	if r.Target != nil {
		head += fmt.Sprintf(", revision %d", *r.Target)
	}
	if r.Steps > 1 {
		head += fmt.Sprintf(", step %d of %d", r.Step, r.Steps)
	}
	p.Wrap("", head, Bold)
	p.Line(rolloutBar(r, min(widestRollout, max(8, p.Width-4)))...)
	p.Wrap("  ", r.Counts(), Normal)
	if r.Message != "" {
		p.Wrap("  ", cluster.Sentence(r.Message), styles[overview.RolloutTone(&r)])
	}
	if r.Done != nil && r.Result == "" {
		p.Wrap("  ", fmt.Sprintf("Complete at about %s (in %s).", text.Clock(*r.Done), max(r.Done.Sub(now), 0).Round(time.Second)), Normal)
	}
	planNodes(p, "failed: ", r.Failed, int(r.Nodes.Failed), Red)
	planNodes(p, "set aside: ", r.SetAside, int(r.Nodes.SetAside), Yellow)
}

// rolloutBar draws a part for each kind of nodes, as wide as their share. A kind of which there
// is a node has at least one column.
func rolloutBar(r cluster.Rollout, width int) []Span {
	n := r.Nodes
	parts := []struct {
		count int32
		char  string
		style Style
	}{
		{n.Updated, "━", Green},
		{n.Switching, "→", Yellow},
		{n.Failed, "!", Red},
		{n.SetAside + n.NotReady, "x", Yellow},
		{n.Overridden, "-", Dim},
		{n.Waiting, "·", Dim},
	}
	counts := make([]int32, len(parts))
	for i := range parts {
		counts[i] = parts[i].count
	}
	out := []Span{plain("  │")}
	for i, columns := range shareOut(counts, width) {
		out = append(out, Phrase(strings.Repeat(parts[i].char, columns), parts[i].style))
	}
	return append(out, plain("│"))
}

// shareOut divides a width in proportion to counts. A count that is not zero gets at least one
// column, so there must be a column for each.
func shareOut[N int32 | int64](counts []N, width int) []int {
	out := make([]int, len(counts))
	sum, before, used := 0, 0, 0
	for _, c := range counts {
		sum += int(c)
	}
	if sum == 0 {
		out[len(out)-1] = width
		return out
	}
	for i, c := range counts {
		before += int(c)
		if c > 0 {
			out[i] = max(before*width/sum-used, 1)
		}
		used += out[i]
	}
	for i := 0; used > width; i = (i + 1) % len(out) {
		if out[i] > 1 {
			out[i]--
			used--
		}
	}
	return out
}

// planNodes lists nodes with their reasons.
func planNodes(p *Page, head string, nodes []v1beta1.PlanNode, all int, style Style) {
	for i, n := range nodes {
		if i == maxListed {
			break
		}
		p.Wrap("  "+head, n.NodeName+overview.Outcome(&n), style)
	}
	if more := all - min(len(nodes), maxListed); more > 0 && len(nodes) > 0 {
		p.Wrap("  "+head, fmt.Sprintf("and %d more", more), style)
	}
}
