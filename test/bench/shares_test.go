package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/test/figures"
)

// TestFiguresInMemory measures what takes little time. The hardware in memory implements only the
// part of a driver that claims call.
func TestFiguresInMemory(t *testing.T) {
	t.Chdir("../..") // Figures read the chart.
	b := &bench{dir: t.TempDir()}
	var all []figures.Figure
	all = append(all, b.parallelFigures()...)
	all = append(all, b.shareFigures()[1:2]...)
	for _, f := range all {
		reading, err := f.Measure(t.Context())
		require.NoError(t, err, f.Name)
		assert.NotEmpty(t, reading.Seen, f.Name)
	}
}
