package main

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestVerdicts(t *testing.T) {
	for _, tt := range []struct {
		limit Limit
		value float64
		want  string
	}{
		{AtMost(3, "×"), 2.99, ok},
		{AtMost(3, "×"), 3, ok},
		{AtMost(3, "×"), 3.01, over},
		{AtMost(0, "writes"), 0, ok},
		{AtMost(0, "writes"), 1, over},
		{Below(1, "×"), 0.99, ok},
		{Below(1, "×"), 1, over},
		{AtMost(3, "×"), math.NaN(), over},
		{Below(3, "×"), math.NaN(), over},
		{AtMost(3, "×"), math.Inf(1), over},
	} {
		var out strings.Builder
		f := Figure{Name: "a figure", Limit: tt.limit}
		table := newTable(&out, []Figure{f})
		table.add(f, Reading{Value: tt.value, Seen: "so it is"}, nil)
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		words := strings.Fields(lines[len(lines)-1])
		assert.Equal(t, tt.want, words[len(words)-1], "%v against %v", tt.value, tt.limit)
		assert.Equal(t, tt.want == over, table.bad == 1)
	}
}

func TestTable(t *testing.T) {
	figures := []Figure{
		{Name: "writes", Limit: AtMost(0, "writes")},
		{Name: "time of × against ×", Limit: AtMost(1.5, "×")},
		{Name: "memory", Limit: AtMost(60, "MB")},
	}
	var out strings.Builder
	table := newTable(&out, figures)
	table.add(figures[0], Reading{Seen: "16 slices"}, nil)
	table.add(figures[1], Reading{Value: 1.0 / 3}, nil)
	table.add(figures[2], Reading{}, errors.New("no program"))
	want := []string{
		"figure               |  measured |      limit | seen",
		"writes               |  0 writes | ≤ 0 writes | 16 slices",
		"time of × against ×  |    0.33 × |   ≤ 1.50 × |",
		"memory               |         - |    ≤ 60 MB | not measured: no program",
	}
	verdicts := []string{"verdict", ok, ok, over}
	lines := strings.Split(strings.TrimRight(out.String(), "\n"), "\n")
	for i, line := range lines {
		for _, cell := range strings.Split(want[i], "|") {
			assert.Contains(t, line, strings.TrimSpace(cell))
		}
		assert.True(t, strings.HasSuffix(line, "  "+verdicts[i]), line)
		assert.Len(t, []rune(strings.TrimSuffix(line, verdicts[i])), len([]rune(strings.TrimSuffix(lines[0], "verdict"))), "the columns are in line")
	}
	assert.Len(t, lines, len(want))
	assert.Equal(t, 1, table.bad)
}

func TestMedian(t *testing.T) {
	values := []float64{9, 1, 5}
	assert.InDelta(t, 5, median(values), 0)
	assert.Equal(t, []float64{9, 1, 5}, values)
	assert.InDelta(t, 3, median([]float64{9, 1, 1, 5}), 0)
}
