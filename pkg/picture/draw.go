package picture

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tranche-dev/tranche/pkg/cluster"
	"github.com/tranche-dev/tranche/pkg/cluster/overview"
)

// MinWidth is the narrowest picture that is drawn.
const MinWidth = 40

// drawing is the state of a picture.
type drawing struct {
	*Page
	summary *cluster.Summary
	// wide is true if each holder has its own line, with device and claim.
	wide bool
	// compacted is set if claims were left out, for the legend.
	compacted bool
	// short is set if GPUs are named by their PCI address.
	short    bool
	nameCols int
}

// plain returns a phrase without a style.
func plain(s string) Span { return Phrase(s, Normal) }

// newDrawing starts a picture on a page, which it makes wide enough.
func newDrawing(p *Page, s *cluster.Summary, wide bool) *drawing {
	p.Width = max(MinWidth, p.Width)
	return &drawing{Page: p, summary: s, wide: wide}
}

// Draw draws each GPU of a summary. If wide, each holder has its own line, with device and claim.
func Draw(p *Page, s *cluster.Summary, wide bool) {
	d := newDrawing(p, s, wide)
	d.chooseNames()
	if len(s.Nodes) == 0 {
		d.empty()
	}
	for _, n := range s.Nodes {
		d.node(n)
	}
	d.lost()
	d.waiting()
	d.Unread(s.Unread)
	d.legend()
}

// chooseNames names GPUs in full if the names of small partitions then still fit into their
// boxes, otherwise by the PCI address.
func (d *drawing) chooseNames() {
	full, short, all := 0, 0, true
	for _, n := range d.summary.Nodes {
		for _, g := range n.GPUs {
			full = max(full, Width(g.Name))
			short = max(short, Width(overview.ShortName(g.Name)))
			all = all && overview.ShortName(g.Name) != g.Name
		}
	}
	d.nameCols = full
	if roomForLabels := len(" 1g.10gb") * barParts; all && d.Width-full-5 < roomForLabels {
		d.short, d.nameCols = true, short
	}
}

// indent returns the column of the bars and of all details of a GPU.
func (d *drawing) indent() int { return 2 + d.nameCols + 2 }

func (d *drawing) node(n cluster.Node) {
	d.Blank()
	head := []Span{Phrase(n.Name, Bold), plain(": ")}
	var facts []Span
	products := overview.ProductsOf(&n)
	all := d.nodeFacts(n)
	for i, text := range all {
		if i < len(all)-1 {
			text += ","
		}
		facts = append(facts, Text(text, Normal))
	}
	if state := n.State(); state != "" {
		facts = append(facts, Phrase("("+state+")", Yellow))
	}
	d.Flow(head, facts...)
	d.profileLines(n)
	d.Blank()
	_, sameMode := hardwareMode(n)
	for _, g := range n.GPUs {
		d.gpu(g, len(products) > 1, !sameMode, len(n.GPUs) == 1)
	}
	d.room(n, products)
}

// nodeFacts describes the node: its GPUs, driver, modes and profile.
func (d *drawing) nodeFacts(n cluster.Node) []string {
	facts := []string{overview.ModelOf(&n)}
	if version := n.DriverVersion(); version != "" {
		facts = append(facts, "driver "+version)
		if modes := modes(n); modes != "" {
			facts = append(facts, modes)
		}
	}
	if n.Profile != nil && n.Profile.Title() != "" {
		facts = append(facts, strings.ReplaceAll(n.Profile.Title(), " → ", NoBreak+"→"+NoBreak))
	}
	return facts
}

// memoryModes lists the memory modes of the node's GPUs.
func memoryModes(n cluster.Node) []string {
	var modes []string
	for _, g := range n.GPUs {
		if g.MemoryMode != "" && !slices.Contains(modes, g.MemoryMode) {
			modes = append(modes, g.MemoryMode)
		}
	}
	slices.Sort(modes)
	return modes
}

// gpu draws one GPU: its bar, and the details below it.
func (d *drawing) gpu(g cluster.GPU, nameProduct, sayMode, alone bool) {
	name := g.Name
	if d.short {
		name = overview.ShortName(g.Name)
	}
	head := []Span{plain("  "), Phrase(Pad(name, d.nameCols), Bold), plain("  ")}
	d.Line(append(head, d.drawBar(g, barWidth(d.Width-d.indent()))...)...)

	before := d.Len()
	if nameProduct {
		d.detail("", Text(overview.ProductName(g.ProductName), Normal))
	}
	d.gpuMode(g, sayMode)
	for _, n := range overview.NotesOf(&g) {
		d.detail(n.About, Text(n.Text, styles[n.Tone]))
	}
	d.holders(g.Held)
	for _, t := range g.Taints {
		note, source := overview.TaintNote(&t)
		d.detail(note.About, Text(note.Text, styles[note.Tone]), Phrase("("+source+")", Dim))
	}
	if len(g.Fits) > 0 && (alone || len(g.Held) > 0 || len(g.Taints) > 0) {
		d.detail("free: ", fitWords(g.Fits)...)
	}
	if d.Len() > before {
		d.Blank()
	}
}

func (d *drawing) detail(head string, text ...Span) {
	d.Flow([]Span{plain(strings.Repeat(" ", d.indent()) + head)}, text...)
}

// styles are those of the tones.
var styles = map[overview.Tone]Style{"": Normal, overview.OK: Green, overview.Warn: Yellow, overview.Bad: Red}

// fitWords formats free capacity: "3g.40gb ×1 or 1g.10gb ×3".
func fitWords(all []cluster.Fit) []Span {
	var out []Span
	for i, f := range cluster.Plain(all) {
		if i > 0 {
			out = append(out, plain("or"))
		}
		out = append(out, Phrase(fmt.Sprintf("%s ×%d", f.Label, f.Count), Green))
	}
	return out
}

// room describes the free capacity of a node with several GPUs, by product.
func (d *drawing) room(n cluster.Node, products []overview.Product) {
	if d.summary.Partial || len(n.GPUs) < 2 {
		return
	}
	d.Blank()
	for _, p := range products {
		gpus := slices.DeleteFunc(slices.Clone(n.GPUs), func(g cluster.GPU) bool { return overview.ProductName(g.ProductName) != p.Name })
		head := "free on " + n.Name + ": "
		if len(products) > 1 {
			head = "free on " + n.Name + " (" + p.Name + "): "
		}
		if !slices.ContainsFunc(gpus, func(g cluster.GPU) bool { return g.MissingSlices == 0 }) {
			continue
		}
		free := fitWords(cluster.Sum(gpus))
		if len(free) == 0 {
			free = []Span{Text("nothing, all GPUs are full or blocked", Normal)}
		}
		d.Flow([]Span{plain("  " + head)}, free...)
	}
}
