package picture

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestCenterFillsTheBox(t *testing.T) {
	for width := range 30 {
		for _, label := range []string{"", "1g", "1g.10gb", "whole GPU"} {
			for _, color := range []bool{true, false} {
				got := center(shorten(label, width), width, color)
				assert.Equal(t, width, Width(got), "%q in %d", label, width)
			}
		}
	}
	assert.Equal(t, "━━ 1g ━━", center("1g", 8, false))
	assert.False(t, strings.Contains(center("1g", 8, true), "━"))
}
