package figures

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
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
		table := NewTable(&out, []Figure{f})
		table.Add(f, Reading{Value: tt.value, Seen: "so it is"}, nil)
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		words := strings.Fields(lines[len(lines)-1])
		assert.Equal(t, tt.want, words[len(words)-1], "%v against %v", tt.value, tt.limit)
		assert.Equal(t, tt.want == over, table.Bad == 1)
	}
}

func TestTable(t *testing.T) {
	figures := []Figure{
		{Name: "writes", Limit: AtMost(0, "writes")},
		{Name: "time of × against ×", Limit: AtMost(1.5, "×")},
		{Name: "memory", Limit: AtMost(60, "MB")},
	}
	var out strings.Builder
	table := NewTable(&out, figures)
	table.Add(figures[0], Reading{Seen: "16 slices"}, nil)
	table.Add(figures[1], Reading{Value: 1.0 / 3}, nil)
	table.Add(figures[2], Reading{}, errors.New("no program"))
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
	assert.Equal(t, 1, table.Bad)
}

func TestMeasure(t *testing.T) {
	measured := 0
	figure := func(name string, value float64) Figure {
		return Figure{Name: name, Limit: AtMost(1, "x"), Measure: func(context.Context) (Reading, error) {
			measured++
			return Reading{Value: value}, nil
		}}
	}
	all := []Figure{figure("one good", 1), figure("one bad", 2), figure("another", 3)}
	var out strings.Builder
	bad, err := Measure(t.Context(), &out, all, "one")
	require.NoError(t, err)
	assert.Equal(t, 1, bad)
	assert.Equal(t, 2, measured)
	assert.NotContains(t, out.String(), "another")

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = Measure(ctx, &out, all, "")
	require.ErrorIs(t, err, context.Canceled)
}

func TestMedian(t *testing.T) {
	values := []float64{9, 1, 5}
	assert.InDelta(t, 5, Median(values), 0)
	assert.Equal(t, []float64{9, 1, 5}, values)
	assert.InDelta(t, 3, Median([]float64{9, 1, 1, 5}), 0)
}

func TestFrom(t *testing.T) {
	double := func(n float64) Reading { return Reading{Value: 2 * n} }
	r, err := From(func() (float64, error) { return 2, nil }, double)(t.Context())
	require.NoError(t, err)
	assert.Equal(t, Reading{Value: 4}, r)
	_, err = From(func() (float64, error) { return 0, assert.AnError }, double)(t.Context())
	require.ErrorIs(t, err, assert.AnError)
}
