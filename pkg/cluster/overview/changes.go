package overview

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/cluster"
	"github.com/tranche-dev/tranche/pkg/lists"
	"github.com/tranche-dev/tranche/pkg/text"
)

// Changes returns the differences of two summaries, a line for each.
func Changes(before, after *cluster.Summary) []string {
	var out []string
	old := map[string]*cluster.Node{}
	for i := range before.Nodes {
		old[before.Nodes[i].Name] = &before.Nodes[i]
	}
	for i := range after.Nodes {
		n := &after.Nodes[i]
		was := old[n.Name]
		delete(old, n.Name)
		if was == nil {
			out = append(out, fmt.Sprintf("%s: publishes %s", n.Name, text.Count(len(n.GPUs), "GPU")))
			was = &cluster.Node{Name: n.Name, GPUs: n.GPUs}
		}
		for _, text := range nodeChanges(was, n) {
			out = append(out, n.Name+": "+text)
		}
	}
	for i := range before.Nodes {
		if n := &before.Nodes[i]; old[n.Name] != nil {
			out = append(out, n.Name+": publishes no GPUs any more")
		}
	}
	if len(before.Waiting) != len(after.Waiting) {
		out = append(out, waiting(after))
	}
	return out
}

// Line returns a summary in one line.
func Line(s *cluster.Summary) string {
	o := Of(s)
	parts := []string{text.Count(len(s.Nodes), "node"), text.Count(s.GPUCount(), "GPU")}
	for _, state := range o.States {
		parts = append(parts, fmt.Sprintf("%d %s", state.Count, state.State))
	}
	return strings.Join(append(parts, waiting(s)), ", ")
}

func waiting(s *cluster.Summary) string {
	if len(s.Waiting) == 1 {
		return "1 claim waits"
	}
	return fmt.Sprintf("%d claims wait", len(s.Waiting))
}

func nodeChanges(was, is *cluster.Node) []string {
	var out []string
	if is.State() != was.State() {
		out = append(out, cmp.Or(is.State(), "ready"))
	}
	if text := profileText(is); text != "" && text != profileText(was) {
		out = append(out, text)
	}
	for i := range is.GPUs {
		g := &is.GPUs[i]
		at := slices.IndexFunc(was.GPUs, func(o cluster.GPU) bool { return o.Name == g.Name })
		if at < 0 {
			out = append(out, g.Name+": published")
			continue
		}
		for _, text := range gpuChanges(&was.GPUs[at], g) {
			out = append(out, g.Name+": "+text)
		}
	}
	for i := range was.GPUs {
		if name := was.GPUs[i].Name; !slices.ContainsFunc(is.GPUs, func(o cluster.GPU) bool { return o.Name == name }) {
			out = append(out, name+": not published any more")
		}
	}
	return out
}

// profileText describes the profile of a node without times, which change all the time.
func profileText(n *cluster.Node) string {
	p := n.Profile
	if p == nil {
		return ""
	}
	text := p.Title()
	if p.State != "" && !p.UpToDate {
		text += ", " + string(p.State)
		if p.Doing != "" && p.Switching() {
			text += ": " + p.Doing
		} else if p.Switch.Message != "" {
			text += ": " + p.Switch.Message
		}
	}
	return strings.TrimPrefix(text, ", ")
}

func gpuChanges(was, is *cluster.GPU) []string {
	var out []string
	added, removed := difference(holds(was), holds(is))
	for _, text := range removed {
		out = append(out, "released: "+text)
	}
	for _, text := range added {
		out = append(out, "held: "+text)
	}
	added, removed = difference(taints(was), taints(is))
	for _, text := range removed {
		out = append(out, "no longer tainted: "+text)
	}
	for _, text := range added {
		out = append(out, "tainted: "+text)
	}
	if was.Problem != is.Problem {
		if is.Problem == "" {
			out = append(out, "no problem any more")
		} else {
			out = append(out, "problem: "+is.Problem)
		}
	}
	if was.HardwareMode != is.HardwareMode && is.HardwareMode != (v1beta1.GPUModes{}) {
		out = append(out, "mode "+cluster.ModeText(is.HardwareMode))
	}
	return out
}

// holds names each device that is held with each holder.
func holds(g *cluster.GPU) []string {
	var out []string
	for _, h := range g.Held {
		for _, o := range h.Holders {
			who, claim := Who(&o)
			if len(o.Consumers()) == 0 && !o.Hidden {
				who = []string{claim}
			}
			out = append(out, fmt.Sprintf("%s (%s) by %s", h.Label, h.Device, strings.Join(who, ", ")))
		}
	}
	return out
}

func taints(g *cluster.GPU) []string {
	return lists.Map(g.Taints, cluster.Taint.String)
}

// difference returns the texts that only the second list has, and those that only the first has.
func difference(was, is []string) (added, removed []string) {
	without := func(all, others []string) []string {
		return slices.DeleteFunc(slices.Clone(all), func(s string) bool { return slices.Contains(others, s) })
	}
	return without(is, was), without(was, is)
}
