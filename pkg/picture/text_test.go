package picture

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

func flowed(width int, head string, phrases ...string) string {
	p := page{width: width}
	var text []span
	for _, s := range phrases {
		text = append(text, plainText(s))
	}
	p.flow([]span{plainText(head)}, text)
	return p.out.String()
}

func TestFlowContinuesUnderTheFirstWord(t *testing.T) {
	assert.Equal(t, "free: one\n      two\n", flowed(11, "free: ", "one", "two"))
	assert.Equal(t, "free: one two\n", flowed(13, "free: ", "one", "two"))
}

func TestFlowNeverBreaksAName(t *testing.T) {
	assert.Equal(t, "a long-name\n  b\n", flowed(5, "a ", "long-name", "b"))
}

func TestFlowKeepsAPhraseTogetherWhereItCan(t *testing.T) {
	assert.Equal(t, "pod\n(claim x)\n", flowed(10, "", "pod", "(claim x)"))
	assert.Equal(t, "pod (claim\nxxxxxxxx)\n", flowed(10, "", "pod", "(claim xxxxxxxx)"))
}

func TestABlankThatIsKeptIsNoPlaceToBreak(t *testing.T) {
	p := page{width: 8}
	p.flow(nil, words("one two"+keep+"3", normal))
	assert.Equal(t, "one\ntwo 3\n", p.out.String())
}

func TestBlankLinesDoNotPileUp(t *testing.T) {
	p := page{width: 80}
	p.blank()
	p.line(plainText("a"))
	p.blank()
	p.blank()
	p.line(plainText("b"))
	assert.Equal(t, "a\n\nb\n", p.out.String())
}

func TestCenterFillsTheBox(t *testing.T) {
	for width := range 30 {
		for _, label := range []string{"", "1g", "1g.10gb", "whole card"} {
			for _, color := range []bool{true, false} {
				got := center(shorten(label, width), width, color)
				assert.Equal(t, width, plainText(got).width(), "%q in %d", label, width)
			}
		}
	}
	assert.Equal(t, "━━ 1g ━━", center("1g", 8, false))
	assert.False(t, strings.Contains(center("1g", 8, true), "━"))
}
