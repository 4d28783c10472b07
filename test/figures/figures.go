// Package figures holds measurements to their limits: what, measured, limit, what was
// seen, and "ok" or "over" as the last word of each line. It imports nothing of this
// module.
package figures

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Figure is one number that the project holds itself to.
type Figure struct {
	// Name says what is measured.
	Name  string
	Limit Limit
	// Measure takes the number.
	Measure func(ctx context.Context) (Reading, error)
}

// From measures by what a run has found. Figures share a run by sync.OnceValues.
func From[Run any](run func() (Run, error), read func(Run) Reading) func(context.Context) (Reading, error) {
	return func(context.Context) (Reading, error) {
		found, err := run()
		if err != nil {
			return Reading{}, err
		}
		return read(found), nil
	}
}

// Limit is what a figure may be.
type Limit struct {
	Value float64
	// Below asks for less than the value, not for at most that much.
	Below bool
	// Unit stands behind the measured number and the limit.
	Unit string
}

// AtMost is a limit that may be reached.
func AtMost(value float64, unit string) Limit { return Limit{Value: value, Unit: unit} }

// Below is a limit that may not be reached.
func Below(value float64, unit string) Limit { return Limit{Value: value, Unit: unit, Below: true} }

// Holds reports whether a measured value keeps to the limit. What is no number
// does not.
func (l Limit) Holds(value float64) bool {
	if l.Below {
		return value < l.Value
	}
	return value <= l.Value
}

func (l Limit) String() string {
	if l.Below {
		return "< " + l.format(l.Value)
	}
	return "≤ " + l.format(l.Value)
}

// format writes a value with two digits after the point where it has any.
func (l Limit) format(value float64) string {
	digits := 2
	if value == float64(int64(value)) {
		digits = 0
	}
	return strconv.FormatFloat(value, 'f', digits, 64) + " " + l.Unit
}

// Reading is what a measurement found.
type Reading struct {
	Value float64
	// Seen is what the value was made from, for people.
	Seen string
}

// The verdicts, the last word of each line.
const (
	ok   = "ok"
	over = "over"
)

// Table writes a line for each figure, as soon as it is measured.
type Table struct {
	out   io.Writer
	width int
	// Bad counts the figures that are over their limit.
	Bad int
}

// Measure measures the figures that have a text in their name, with a line for each,
// and returns how many are over their limit.
func Measure(ctx context.Context, out io.Writer, all []Figure, only string) (bad int, err error) {
	var wanted []Figure
	for _, f := range all {
		if strings.Contains(f.Name, only) {
			wanted = append(wanted, f)
		}
	}
	t := NewTable(out, wanted)
	for _, f := range wanted {
		reading, err := f.Measure(ctx)
		if ctx.Err() != nil {
			return 0, ctx.Err()
		}
		t.Add(f, reading, err)
	}
	return t.Bad, nil
}

// NewTable begins a table with room for the names of the figures.
func NewTable(out io.Writer, figures []Figure) *Table {
	t := &Table{out: out}
	for _, f := range figures {
		t.width = max(t.width, utf8.RuneCountInString(f.Name))
	}
	t.line("figure", "measured", "limit", "seen", "verdict")
	return t
}

// Add writes the line of a figure. One that could not be measured is over.
func (t *Table) Add(f Figure, r Reading, err error) {
	measured, verdict := f.Limit.format(r.Value), over
	switch {
	case err != nil:
		measured, r.Seen = "-", "not measured: "+err.Error()
	case f.Limit.Holds(r.Value):
		verdict = ok
	}
	if verdict == over {
		t.Bad++
	}
	t.line(f.Name, measured, f.Limit.String(), r.Seen, verdict)
}

func (t *Table) line(what, measured, limit, seen, verdict string) {
	fmt.Fprintf(t.out, "%-*s  %11s  %11s  %-58s  %s\n", t.width, what, measured, limit, seen, verdict)
}

// Median is the middle of the values; they keep their order.
func Median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	if n%2 == 1 {
		return sorted[n/2]
	}
	return (sorted[n/2-1] + sorted[n/2]) / 2
}
