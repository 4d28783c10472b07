package picture

import (
	"math"
	"strings"

	"github.com/charmbracelet/x/ansi"

	"github.com/tranche-dev/tranche/pkg/cluster"
)

const (
	// The width of a bar is a multiple of barParts, so that the bars of GPUs with 8, 4 and 1
	// positions end in the same column.
	barParts = 8
	// The widest part has room for the name of a small profile. The narrowest still shows its
	// state.
	widestPart, narrowestPart = 13, 2
)

// marks fill the positions of a bar that are not held.
var marks = map[cluster.State]struct {
	char  string
	style Style
}{
	cluster.Free:     {"·", Green},
	cluster.Blocked:  {"!", Yellow},
	cluster.Leftover: {"x", Dim},
	cluster.Unknown:  {"?", Dim},
}

// The boxes of partitions, alternating so that neighbors differ, and of a whole GPU.
var (
	boxed      = On(ansi.BrightWhite, ansi.Blue)
	boxedNext  = On(ansi.Black, ansi.Cyan)
	boxedWhole = On(ansi.BrightWhite, ansi.Magenta)
)

// barWidth returns the width of a bar, without its last border, in the given room.
func barWidth(room int) int {
	return barParts * min(widestPart, max(narrowestPart, (room-1)/barParts))
}

// drawBar draws a GPU's bar.
func (d *drawing) drawBar(g cluster.GPU, width int) []Span {
	column := func(position int) int { return position * width / g.Positions }
	var out []Span
	boxes := 0
	for i, s := range g.Bar {
		border := "│"
		if i > 0 && s.State != cluster.Taken && g.Bar[i-1].State == s.State {
			border = "┊" // a place where the GPU can be divided, and is not
		}
		inner := column(s.Start+s.Size) - column(s.Start) - 1
		out = append(append(out, plain(border)), d.cell(s, inner, boxes)...)
		if s.State == cluster.Taken {
			boxes++
		}
	}
	return append(out, plain("│"))
}

// cell draws a segment. Of a shared device, the box is as wide as what claims hold of it. The name is where
// there is more room.
func (d *drawing) cell(s cluster.Segment, inner, nth int) []Span {
	if s.State != cluster.Taken {
		return []Span{mark(s.State, "", inner)}
	}
	st := boxed
	switch {
	case s.Label == cluster.WholeGPU:
		st = boxedWhole
	case nth%2 == 1:
		st = boxedNext
	}
	// Without colors the box is filled with a line, because blanks look empty.
	fill := "━"
	if d.Color {
		fill = " "
	}
	rest := max(0, min(inner-1, int(math.Ceil(s.Left*float64(inner)))))
	if 2*rest > inner+1 {
		return []Span{Phrase(strings.Repeat(fill, inner-rest), st), mark(s.Rest, s.Label, rest)}
	}
	out := []Span{Phrase(center(shorten(s.Label, inner-rest), inner-rest, fill), st)}
	if rest > 0 {
		out = append(out, mark(s.Rest, "", rest))
	}
	return out
}

// mark draws positions that nobody holds.
func mark(s cluster.State, label string, width int) Span {
	m := marks[s]
	return Phrase(center(shorten(label, width), width, m.char), m.style)
}

// center puts a label in the middle of what fills the rest.
func center(label string, width int, fill string) string {
	// Without room for blanks, only the label is drawn.
	if n := Width(label); n > 0 && n+2 <= width {
		label = " " + label + " "
	}
	rest := max(0, width-Width(label))
	if label != "" && rest == 1 {
		return label + " "
	}
	return strings.Repeat(fill, rest/2) + label + strings.Repeat(fill, rest-rest/2)
}

// shorten makes a label fit: "1g.10gb+me", "1g+me", "1g", nothing.
func shorten(label string, width int) string {
	fitsIn := func(s string) bool { return Width(s) <= width }
	if fitsIn(label) {
		return label
	}
	head, tail, dotted := strings.Cut(label, ".")
	if dotted {
		if i := strings.IndexAny(tail, "+-"); i >= 0 && fitsIn(head+tail[i:]) {
			return head + tail[i:]
		}
		if fitsIn(head) {
			return head
		}
	}
	if word, _, found := strings.Cut(label, " "); found && fitsIn(word) {
		return word
	}
	if width >= 4 {
		return Cut(label, width)
	}
	return ""
}
