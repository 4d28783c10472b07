package picture

import (
	"fmt"
	"strings"

	"github.com/tranche-dev/tranche/pkg/cluster"
	"github.com/tranche-dev/tranche/pkg/cluster/overview"
)

// compactFrom is the number of holders of a GPU from which they share lines, without the names
// of their claims.
const compactFrom = 5

// entry is a line of the list of holders.
type entry struct {
	what  string
	where string // the device, in wide form
	who   []Span
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
		what = max(what, Width(e.what))
		where = max(where, Width(e.where))
	}
	for _, e := range entries {
		head := Pad(e.what, what) + "  "
		if where > 0 {
			head += Pad(e.where, where) + "  "
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
			e.who = append(e.who, Text("but the device is no longer published", Red))
		}
		out = append(out, e)
	}
	if len(h.Left) > 0 {
		e := entry{what: h.Label, who: append([]Span{Text("left:", Green)}, List(h.Left.Texts(true), Green)...)}
		if d.wide {
			e.where = h.Device
		}
		out = append(out, e)
	}
	return out
}

// who names a holder: its pods, and the claim in parentheses.
func who(o cluster.Holder) []Span {
	var out []Span
	if o.Admin {
		out = append(out, Text("watched by", Dim))
	}
	names, claim := overview.Who(&o)
	style := Normal
	switch {
	case o.Hidden:
		style = Dim
	case len(o.Consumers()) == 0:
		style = Yellow
	}
	out = append(out, List(names, style)...)
	if claim != "" {
		out = append(out, Phrase("(claim "+claim+")", Dim))
	}
	if amounts := o.Consumed.Texts(false); len(amounts) > 0 {
		out = append(append(out, plain("has")), List(amounts, Normal)...)
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
	if o.Admin || len(o.Consumed) > 0 || (len(o.Consumers()) == 0 && !o.Hidden) {
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
		return entry{what: what, who: []Span{Text("other namespaces", Dim)}}
	}
	var names []string
	for _, h := range held {
		// Pods of one claim stay on one line.
		names = append(names, strings.Join(h.Holders[0].Consumers(), "+"))
	}
	return entry{what: what, who: append([]Span{plain(namespace + ":")}, List(names, Normal)...)}
}
