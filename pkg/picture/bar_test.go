package picture

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/tranche-dev/tranche/pkg/cluster"
)

func TestCenterFillsTheBox(t *testing.T) {
	for width := range 30 {
		for _, label := range []string{"", "1g", "1g.10gb", "whole GPU"} {
			assert.Equal(t, width, Width(center(shorten(label, width), width, "━")), "%q in %d", label, width)
		}
	}
	assert.Equal(t, "━━ 1g ━━", center("1g", 8, "━"))
}

// A shared device is drawn by what is held of it, and has its name in the larger part.
func TestCellOfAShare(t *testing.T) {
	for _, c := range []struct {
		held  float64
		inner int
		want  string
	}{
		{0.001, 24, "━···· memory share ·····"}, {0.25, 24, "━━━━━━·· memory share ··"}, {0.75, 24, "━━ memory share ━━······"},
		{0.999, 24, "━━━━ memory share ━━━━━·"}, {1, 24, "━━━━━ memory share ━━━━━"}, {0.47, 26, "━━━━━━━━━━━━ memory share "}, {0.5, 26, "memory share ·············"}, {0.5, 2, "━·"}, {0.1, 1, "━"}, {0.1, 0, ""},
	} {
		d := &drawing{Page: &Page{}}
		got := ""
		for _, s := range d.cell(cluster.Segment{Size: 8, State: cluster.Taken, Label: "memory share", Left: 1 - c.held, Rest: cluster.Free}, c.inner, 0) {
			got += s.text
		}
		assert.Equal(t, c.want, got, "%v in %d", c.held, c.inner)
	}
}
