package docs_test

import (
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/test/golden"
)

// TestPlots compares the plot of a page with the table that it draws. -update draws it.
func TestPlots(t *testing.T) {
	const page, picture = "concepts/how-scheduling-scales.md", "images/scheduler-cpu.svg"
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	golden.Equal(t, picture, logPlot("Scheduler CPU per pod (ms), by nodes", rowsOf(t, string(text), "| nodes |")))
}

// rowsOf returns the cells of the table with this beginning of its header, the header first.
func rowsOf(t *testing.T, page, header string) (rows [][]string) {
	t.Helper()
	_, rest, found := strings.Cut(page, "\n"+header)
	require.True(t, found, header)
	for line := range strings.Lines(header + rest) {
		if !strings.HasPrefix(line, "|") {
			break
		}
		cells := strings.Split(strings.Trim(line, "|\n"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		rows = append(rows, cells)
	}
	require.Greater(t, len(rows), 3)
	return append(rows[:1:1], rows[2:]...)
}

// logPlot draws a line for each column but the first, both axes logarithmic. A cell begins with a
// number; thousands have commas.
func logPlot(title string, rows [][]string) string {
	const left, top, width, height = 60, 40, 420, 240
	colors := []string{"#d55e00", "#0072b2"}
	number := func(cell string) float64 {
		value, _, _ := strings.Cut(strings.ReplaceAll(cell, ",", ""), " ")
		n, err := strconv.ParseFloat(value, 64)
		if err != nil {
			panic(err)
		}
		return n
	}
	first, last := number(rows[1][0]), number(rows[len(rows)-1][0])
	x := func(n float64) float64 { return left + width*math.Log(n/first)/math.Log(last/first) }
	// From 1 ms to 10 s.
	y := func(ms float64) float64 { return top + height*(1-math.Log10(ms)/4) }
	out := &strings.Builder{}
	fmt.Fprintf(out, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 640 320" font-family="sans-serif" font-size="12">`+"\n")
	fmt.Fprintf(out, "<title>%s</title>\n<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n<text x=\"%d\" y=\"20\">%s</text>\n", title, left, title)
	for ms := 1.0; ms <= 10_000; ms *= 10 {
		fmt.Fprintf(out, `<path d="M%d %.1fh%d" stroke="#ddd"/><text x="%d" y="%.1f" text-anchor="end">%.0f</text>`+"\n", left, y(ms), width, left-8, y(ms)+4, ms)
	}
	for _, row := range rows[1:] {
		fmt.Fprintf(out, `<text x="%.1f" y="%d" text-anchor="middle">%s</text>`+"\n", x(number(row[0])), top+height+20, row[0])
	}
	for column, name := range rows[0][1:] {
		var points []string
		for _, row := range rows[1:] {
			at := fmt.Sprintf("%.1f %.1f", x(number(row[0])), y(number(row[column+1])))
			points = append(points, at)
		}
		end := rows[len(rows)-1]
		fmt.Fprintf(out, `<path d="M%s" fill="none" stroke="%s" stroke-width="2"/>`+"\n", strings.Join(points, "L"), colors[column])
		fmt.Fprintf(out, `<text x="%d" y="%.1f" fill="%s">%s</text>`+"\n", left+width+8, y(number(end[column+1]))+4, colors[column], name)
	}
	return out.String() + "</svg>\n"
}
