package picture

import (
	"strings"
	"unicode/utf8"
)

// minLast is the narrowest last column that is put beside the others; a narrower
// one goes below its row.
const minLast = 24

// table is columns of text. The last one is wrapped where it is wider than the room.
type table struct {
	head []string
	rows [][]string
}

// draw writes the table for a width in columns. Words are never broken: people copy
// names.
func (t *table) draw(width int) string {
	last := len(t.head) - 1
	widths := make([]int, last)
	for _, row := range append([][]string{t.head}, t.rows...) {
		for i := range widths {
			widths[i] = max(widths[i], utf8.RuneCountInString(row[i]))
		}
	}
	hang := 0
	for _, w := range widths {
		hang += w + 2
	}
	below := width-hang < minLast
	var out strings.Builder
	for i, row := range append([][]string{t.head}, t.rows...) {
		var line strings.Builder
		for c, w := range widths {
			line.WriteString(row[c] + strings.Repeat(" ", w-utf8.RuneCountInString(row[c])+2))
		}
		switch {
		case below && i == 0:
			out.WriteString(trim(line.String()))
		case below:
			out.WriteString(trim(line.String()))
			if row[last] != "" {
				out.WriteString(wrap("    ", row[last], 4, width))
			}
		default:
			out.WriteString(wrap(line.String(), row[last], hang, width))
		}
	}
	return out.String()
}

// wrap writes a text behind a head, and goes on below its first word.
func wrap(head, text string, hang, width int) string {
	var out strings.Builder
	line, at := head, hang
	for word := range strings.FieldsSeq(text) {
		n := utf8.RuneCountInString(word)
		if at > hang && at+1+n > width {
			out.WriteString(trim(line))
			line, at = strings.Repeat(" ", hang), hang
		}
		if at > hang {
			line, at = line+" ", at+1
		}
		line, at = line+word, at+n
	}
	out.WriteString(trim(line))
	return out.String()
}

func trim(line string) string { return strings.TrimRight(line, " ") + "\n" }
