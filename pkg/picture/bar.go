package picture

import (
	"strings"
	"unicode/utf8"

	"github.com/tranche-dev/tranche/pkg/cluster"
)

const (
	// barParts is what the width of a bar is a multiple of, so that the bars of
	// cards with 8, 4 and 1 positions end in the same column.
	barParts = 8
	// A part is wide enough for the name of a small profile at best, and never
	// so narrow that its state cannot be seen.
	widestPart, narrowestPart = 13, 2
)

// marks fill the parts of a bar that nobody holds.
var marks = map[cluster.State]struct {
	char  string
	style style
}{
	cluster.Free:     {"·", green},
	cluster.Blocked:  {"!", yellow},
	cluster.Leftover: {"x", dim},
	cluster.Unknown:  {"?", dim},
}

// barWidth is the width of a bar, without its last border, in the given room.
func barWidth(room int) int {
	return barParts * min(widestPart, max(narrowestPart, (room-1)/barParts))
}

// drawBar draws a card's bar.
func (p *page) drawBar(c cluster.Card, width int) []span {
	column := func(position int) int { return position * width / c.Positions }
	var out []span
	boxes := 0
	for i, s := range c.Bar {
		border := "│"
		if i > 0 && s.State != cluster.Taken && c.Bar[i-1].State == s.State {
			border = "┊" // a place where the card may be cut, and is not
		}
		inner := column(s.Start+s.Size) - column(s.Start) - 1
		out = append(out, plainText(border), p.cell(s, inner, boxes))
		if s.State == cluster.Taken {
			boxes++
		}
	}
	return append(out, plainText("│"))
}

func (p *page) cell(s cluster.Segment, inner, nth int) span {
	if s.State == cluster.Taken {
		st := boxed
		switch {
		case s.Label == cluster.WholeGPU:
			st = boxedGr
		case nth%2 == 1:
			st = boxed2
		}
		return span{center(shorten(s.Label, inner), inner, p.color), st}
	}
	m := marks[s.State]
	return span{strings.Repeat(m.char, inner), m.style}
}

// center puts a label in the middle of a box. Without colors the box is drawn
// by a line through it: a box of blanks looks empty.
func center(label string, width int, color bool) string {
	fill := "━"
	if color {
		fill = " "
	}
	// Without room for a blank on either side the label stands alone.
	if n := utf8.RuneCountInString(label); n > 0 && n+2 <= width {
		label = " " + label + " "
	}
	rest := max(0, width-utf8.RuneCountInString(label))
	if label != "" && rest == 1 {
		return label + " "
	}
	return strings.Repeat(fill, rest/2) + label + strings.Repeat(fill, rest-rest/2)
}

// shorten makes a label fit: "1g.10gb+me", "1g+me", "1g", nothing.
func shorten(label string, width int) string {
	fitsIn := func(s string) bool { return utf8.RuneCountInString(s) <= width }
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
	if runes := []rune(label); width >= 4 {
		return string(runes[:width-1]) + "…"
	}
	return ""
}
