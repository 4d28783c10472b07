package picture

import (
	"strings"
	"text/tabwriter"
)

// minLast is the narrowest last column beside the others. If there is less room it goes
// below its row.
const minLast = 24

// Table writes columns of text. The last column is wrapped.
func (p *Page) Table(head []string, rows [][]string) {
	last := len(head) - 1
	all := append([][]string{head}, rows...)
	var b strings.Builder
	columns := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, row := range all {
		// A string.Builder takes every write.
		_, _ = columns.Write([]byte(strings.Join(row[:last], "\t") + "\t\n"))
	}
	_ = columns.Flush()
	for i, line := range strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n") {
		if text := all[i][last]; p.Width-Width(line) >= minLast {
			p.Wrap(line, text, Normal)
		} else if p.Line(Phrase(line, Normal)); i > 0 && text != "" {
			p.Wrap("    ", text, Normal)
		}
	}
}
