package terminal_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/charmbracelet/x/ansi"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/pkg/terminal"
)

func flowed(width int, head string, phrases ...string) string {
	p := terminal.Page{Screen: terminal.Screen{Width: width}}
	var spans []terminal.Span
	for _, s := range phrases {
		spans = append(spans, terminal.Phrase(s, terminal.Normal))
	}
	p.Flow([]terminal.Span{terminal.Phrase(head, terminal.Normal)}, spans...)
	return p.String()
}

func TestFlow(t *testing.T) {
	for name, test := range map[string]struct {
		width   int
		head    string
		phrases []string
		want    string
	}{
		"continues under the first word":       {11, "free: ", []string{"one", "two"}, "free: one\n      two\n"},
		"fills the line":                       {13, "free: ", []string{"one", "two"}, "free: one two\n"},
		"a name is not broken":                 {5, "a ", []string{"long-name", "b"}, "a long-name\n  b\n"},
		"nor one that fills the line":          {9, "", []string{"a", "long-name", "b"}, "a\nlong-name\nb\n"},
		"a phrase is kept together":            {10, "", []string{"pod", "(claim x)"}, "pod\n(claim x)\n"},
		"if it fits":                           {10, "", []string{"pod", "(claim xxxxxxxx)"}, "pod (claim\nxxxxxxxx)\n"},
		"no-break spaces":                      {8, "", []string{"one two" + terminal.NoBreak + "3"}, "one\ntwo 3\n"},
		"signs outside ASCII have their width": {9, "", []string{"ä×… ·│", "x"}, "ä×… ·│ x\n"},
		"nothing":                              {9, "head: ", nil, "head:\n"},
	} {
		assert.Equal(t, test.want, flowed(test.width, test.head, test.phrases...), name)
	}
}

func TestStylesEndWithTheirWord(t *testing.T) {
	p := terminal.Page{Screen: terminal.Screen{Width: 9, Color: true}}
	p.Wrap("", "one long-er", terminal.Red)
	assert.Equal(t, "\x1b[31mone\x1b[m\n\x1b[31mlong-er\x1b[m\n", p.String(), "nothing is left for a pager to carry on")
	assert.Equal(t, "one\nlong-er\n", ansi.Strip(p.String()))
}

func TestASCII(t *testing.T) {
	p := terminal.Page{Screen: terminal.Screen{Width: 80, ASCII: true}}
	p.Line(terminal.Phrase("│━·×│ →…", terminal.Bold))
	assert.Equal(t, "|=.x| >~\n", p.String())
}

func TestBlankLinesDoNotPileUp(t *testing.T) {
	p := terminal.Page{Screen: terminal.Screen{Width: 80}}
	p.Blank()
	p.Line(terminal.Text("a", terminal.Normal))
	p.Blank()
	p.Blank()
	p.Line(terminal.Text("b", terminal.Normal))
	assert.Equal(t, "a\n\nb\n", p.String())
}

func TestTable(t *testing.T) {
	head, rows := []string{"NAME", "N", "TEXT"}, [][]string{{"a-long-name", "1", "many words that do not fit on one line"}, {"b", "22", ""}}
	p := terminal.Page{Screen: terminal.Screen{Width: 45}}
	p.Table(head, rows)
	assert.Equal(t, `NAME         N   TEXT
a-long-name  1   many words that do not fit
                 on one line
b            22
`, p.String())

	p = terminal.Page{Screen: terminal.Screen{Width: 30}}
	p.Table(head, rows)
	assert.Equal(t, `NAME         N
a-long-name  1
    many words that do not fit
    on one line
b            22
`, p.String())
}

func TestScreenOfAFile(t *testing.T) {
	t.Setenv("COLUMNS", "")
	assert.Equal(t, terminal.Screen{Width: 100}, terminal.ScreenOf(&bytes.Buffer{}))
	t.Setenv("COLUMNS", "72")
	assert.Equal(t, terminal.Screen{Width: 72}, terminal.ScreenOf(&bytes.Buffer{}))
	t.Setenv("COLUMNS", "many")
	assert.Equal(t, terminal.Screen{Width: 100}, terminal.ScreenOf(&bytes.Buffer{}))
	file, err := os.Create(filepath.Join(t.TempDir(), "out"))
	require.NoError(t, err)
	defer file.Close()
	assert.False(t, terminal.ScreenOf(file).Color)
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("disk full") }

func TestWriteErrors(t *testing.T) {
	err := terminal.Screen{Width: 80}.Draw(full{}, func(p *terminal.Page) { p.Line(terminal.Text("a", terminal.Normal)) })
	require.EqualError(t, err, "write: disk full")
	require.EqualError(t, terminal.WriteJSON(full{}, 1), "write JSON: disk full")
	require.EqualError(t, terminal.WriteYAML(full{}, 1), "write YAML: disk full")
	require.ErrorContains(t, terminal.WriteYAML(full{}, make(chan int)), "write YAML: ")
}
