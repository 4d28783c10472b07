package picture

import (
	"fmt"
	"strings"

	"github.com/tranche-dev/tranche/pkg/cluster"
	"github.com/tranche-dev/tranche/pkg/cluster/overview"
	"github.com/tranche-dev/tranche/pkg/terminal"
)

// compactFrom is the number of holders of a GPU from which they share lines, without the names
// of their claims.
const compactFrom = 5

// entry is a line of the list of holders.
type entry struct {
	what  string
	where string // the device, in wide form
	who   []terminal.Span
}

// holders lists the holders of a GPU's devices, in the order of the bar.
func (d *drawing) holders(held []cluster.Held) {
	total := 0
	for _, h := range held {
		total += len(h.Holders)
	}
	var entries []entry
	if total >= compactFrom && !d.wide {
		entries = d.compactEntries(held)
	} else {
		for _, h := range held {
			entries = append(entries, d.entries(h)...)
		}
	}
	what, where := 0, 0
	for _, e := range entries {
		what = max(what, terminal.Width(e.what))
		where = max(where, terminal.Width(e.where))
	}
	for _, e := range entries {
		head := terminal.Pad(e.what, what) + "  "
		if where > 0 {
			head += terminal.Pad(e.where, where) + "  "
		}
		d.detail(head, e.who...)
	}
}

// entries gives each holder of a device a line.
func (d *drawing) entries(h cluster.Held) []entry {
	var out []entry
	for _, o := range h.Holders {
		e := entry{what: h.Label, who: who(o)}
		if d.wide {
			e.where = h.Device
		}
		if h.Unpublished {
			e.who = append(e.who, terminal.Text("but the device is no longer published", terminal.Red))
		}
		out = append(out, e)
	}
	if len(h.Left) > 0 {
		e := entry{what: h.Label, who: append([]terminal.Span{terminal.Text("left:", terminal.Green)}, terminal.List(cluster.Amounts(h.Left, true), terminal.Green)...)}
		if d.wide {
			e.where = h.Device
		}
		out = append(out, e)
	}
	return out
}

// who names a holder: its pods, and the claim in parentheses.
func who(o cluster.Holder) []terminal.Span {
	var out []terminal.Span
	if o.Admin {
		out = append(out, terminal.Text("watched by", terminal.Dim))
	}
	names, claim := overview.Who(&o)
	style := terminal.Normal
	switch {
	case o.Hidden:
		style = terminal.Dim
	case len(o.Pods) == 0:
		style = terminal.Yellow
	}
	out = append(out, terminal.List(names, style)...)
	if claim != "" {
		out = append(out, terminal.Phrase("(claim "+claim+")", terminal.Dim))
	}
	if amounts := cluster.Amounts(o.Consumed, false); len(amounts) > 0 {
		out = append(append(out, plain("has")), terminal.List(amounts, terminal.Normal)...)
	}
	return out
}

// compactEntries puts neighbors of one kind and namespace on one line:
// "1g.10gb ×7  default: train-0, train-1, …".
func (d *drawing) compactEntries(held []cluster.Held) []entry {
	var out []entry
	for len(held) > 0 {
		ns, ok := simple(held[0])
		if !ok {
			out = append(out, d.entries(held[0])...)
			held = held[1:]
			continue
		}
		n := 1
		for n < len(held) && held[n].Label == held[0].Label {
			if other, ok := simple(held[n]); !ok || other != ns {
				break
			}
			n++
		}
		out = append(out, group(ns, held[:n]))
		held, d.compacted = held[n:], true
	}
	return out
}

// simple reports whether a device can share a line: it has one holder with a pod. It returns the
// holder's namespace.
func simple(h cluster.Held) (namespace string, ok bool) {
	if len(h.Holders) != 1 || h.Unpublished {
		return "", false
	}
	o := h.Holders[0]
	if o.Admin || len(o.Consumed) > 0 || (len(o.Pods) == 0 && !o.Hidden) {
		return "", false
	}
	return o.Namespace, true
}

func group(namespace string, held []cluster.Held) entry {
	what := held[0].Label
	if len(held) > 1 {
		what = fmt.Sprintf("%s ×%d", what, len(held))
	}
	if held[0].Holders[0].Hidden {
		return entry{what: what, who: []terminal.Span{terminal.Text("other namespaces", terminal.Dim)}}
	}
	var names []string
	for _, h := range held {
		// Pods of one claim stay on one line.
		names = append(names, strings.Join(h.Holders[0].Pods, "+"))
	}
	return entry{what: what, who: append([]terminal.Span{plain(namespace + ":")}, terminal.List(names, terminal.Normal)...)}
}
