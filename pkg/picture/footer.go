package picture

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/tranche-dev/tranche/pkg/cluster"
	"github.com/tranche-dev/tranche/pkg/cluster/overview"
	"github.com/tranche-dev/tranche/pkg/gpu"
)

// empty says what to check if there are no GPUs.
func (d *drawing) empty() {
	switch {
	case d.summary.Selector != "" && d.summary.Only != nil && len(d.summary.Only) == 0:
		d.Flow(nil, Text("No node has the labels "+d.summary.Selector+".", Bold))
		return
	case d.summary.Selector != "":
		d.Flow(nil, Text("No GPUs are published by the nodes with the labels "+d.summary.Selector+".", Bold))
	case len(d.summary.Only) > 0:
		d.Flow(nil, Text("No GPUs are published by "+strings.Join(d.summary.Only, ", ")+".", Bold))
	default:
		d.Flow(nil, Text("No node publishes GPUs yet.", Bold))
	}
	d.Blank()
	d.Line(plain("What to check:"))
	plugin := cluster.InSystem(d.summary.System) + " -l " + cluster.PluginLabel
	for _, step := range []struct{ question, command string }{
		{"Does the plugin run on the nodes with GPUs?", "kubectl get pods -o wide " + plugin},
		{"Which GPUs did it find?", "kubectl logs --prefix -n " + cmp.Or(d.summary.System, "NAMESPACE") + " -l " + cluster.PluginLabel},
		{"Did it leave an event on the node, for example that another system owns the GPUs?", "kubectl get events -A --field-selector involvedObject.kind=Node"},
	} {
		d.Wrap("  ", step.question, Normal)
		d.Line(plain("    " + step.command))
	}
}

// lost lists held devices of GPUs that are no longer published.
func (d *drawing) lost() {
	if len(d.summary.Lost) == 0 {
		return
	}
	d.Blank()
	d.Flow(nil, Text("Held by claims, but no longer published by any node:", Red))
	for _, h := range d.summary.Lost {
		for _, o := range h.Holders {
			d.Flow([]Span{plain("  " + h.Label + " of " + h.Pool + "  ")}, who(o)...)
		}
	}
}

// maxWaiting is how many waiting pods are named.
const maxWaiting = 3

func (d *drawing) waiting() {
	claims := slices.DeleteFunc(slices.Clone(d.summary.Waiting), func(w cluster.Waiting) bool { return w.Claim == "" })
	pods := slices.DeleteFunc(slices.Clone(d.summary.Waiting), func(w cluster.Waiting) bool { return w.Claim != "" })
	if len(d.summary.Waiting) > 0 {
		d.Blank()
	}
	d.waitingLine("claim", claims)
	d.waitingLine("pod", pods)
}

// waitingLine counts waiting pods, names a few, and names the command that explains why.
func (d *drawing) waitingLine(kind string, all []cluster.Waiting) {
	if len(all) == 0 {
		return
	}
	head := fmt.Sprintf("1 %s waits:", kind)
	if len(all) > 1 {
		head = fmt.Sprintf("%d %ss wait:", len(all), kind)
	}
	var names []string
	for _, w := range all[:min(len(all), maxWaiting)] {
		name := w.Claim
		if kind == "pod" {
			name = w.Pod
		}
		names = append(names, w.Namespace+"/"+name)
	}
	if more := len(all) - len(names); more > 0 {
		names = append(names, fmt.Sprintf("%d more", more))
	}
	why := fmt.Sprintf("kubectl tranche why %s -n %s", all[0].Pod, all[0].Namespace)
	if all[0].Pod == "" {
		why = fmt.Sprintf("kubectl -n %s describe resourceclaim %s", all[0].Namespace, all[0].Claim)
	}
	text := append([]Span{Text(head, Yellow)}, List(names, Normal)...)
	d.Flow(nil, append(text, Phrase("("+why+")", Dim))...)
}

// legend explains the symbols that occur.
func (d *drawing) legend() {
	first := slices.IndexFunc(d.summary.Nodes, func(n cluster.Node) bool { return len(n.GPUs) > 0 })
	if first < 0 {
		return
	}
	seen, shared, choice, modes := map[cluster.State]bool{}, false, false, false
	var examples []string
	var said [2]bool
	for _, n := range d.summary.Nodes {
		for _, g := range n.GPUs {
			for _, s := range g.Bar {
				seen[s.State], seen[s.Rest] = true, true
				shared = shared || s.Left > 0
			}
			choice = choice || len(cluster.Plain(g.Fits)) > 1
			modes = modes || (g.MemoryMode != "" && (g.Mode != nil || len(g.Fits) > 1))
			// One example for each kind of GPU is enough.
			for i, example := range []string{exampleProfile(g), exampleMode(g)} {
				if example != "" && !said[i] {
					examples, said[i] = append(examples, example), true
				}
			}
		}
	}
	var text []string
	say := func(when bool, sentence string) {
		if when {
			text = append(text, sentence)
		}
	}
	say(true, "A bar is the memory of one GPU; a box with a name is a piece that somebody holds.")
	say(shared, "The box of a shared device is as long as what is held of it.")
	for _, s := range []cluster.State{cluster.Free, cluster.Unknown, cluster.Leftover, cluster.Blocked} {
		say(seen[s], strings.Repeat(marks[s].char, 3)+" is "+overview.Position(s)+".")
	}
	for _, example := range examples {
		say(true, example)
	}
	say(choice, strings.ReplaceAll(`"a ×2 or b ×3"`, " ", NoBreak)+" is a choice: two a, or three b, or a mixture.")
	say(modes, "All pieces of one AMD GPU are of one kind.")
	if d.short {
		g := d.summary.Nodes[first].GPUs[0]
		say(true, fmt.Sprintf("%s is the GPU %s.", overview.ShortName(g.Name), g.Name))
	}
	say(d.compacted, "Claims and devices: -o"+NoBreak+"wide.")
	d.Blank()
	d.Flow(nil, Text(strings.Join(text, " "), Dim))
}

// fractions are the words for parts of a GPU.
var fractions = map[int]string{2: "half", 3: "a third", 4: "a quarter", 6: "a sixth", 8: "an eighth"}

// exampleMode explains how much of a GPU a partition has, for the current mode of the GPU or the
// one with the smallest partitions.
func exampleMode(g cluster.GPU) string {
	if g.MemoryMode == "" {
		return ""
	}
	say := func(label string, positions int) string {
		if positions == 0 || fractions[g.Positions/positions] == "" {
			return ""
		}
		return fmt.Sprintf("%s is %s of a GPU.", label, fractions[g.Positions/positions])
	}
	for _, h := range g.Held {
		if h.Label != cluster.WholeGPU && h.Type != gpu.TypeShare {
			return say(h.Label, len(h.Positions))
		}
	}
	if len(g.Fits) > 0 {
		last := g.Fits[len(g.Fits)-1]
		return say(last.Label, last.Positions)
	}
	return ""
}

// exampleProfile explains the name of a profile that the GPU offers or that is held.
func exampleProfile(g cluster.GPU) string {
	labels := make([]string, 0, len(g.Held)+len(g.Fits))
	for _, f := range g.Fits {
		labels = append(labels, f.Label)
	}
	for _, h := range g.Held {
		labels = append(labels, h.Label)
	}
	for _, l := range slices.Backward(labels) {
		var compute, memory int
		if n, _ := fmt.Sscanf(l, "%dg.%dgb", &compute, &memory); n < 2 || l != fmt.Sprintf("%dg.%dgb", compute, memory) {
			continue
		}
		parts := "parts"
		if compute == 1 {
			parts = "part"
		}
		return fmt.Sprintf("%s has %d compute %s and %d%sGB.", l, compute, parts, memory, NoBreak)
	}
	return ""
}
