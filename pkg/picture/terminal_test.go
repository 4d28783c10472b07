package picture_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/charmbracelet/x/ansi"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/pkg/picture"
)

func flowed(width int, head string, phrases ...string) string {
	p := picture.Page{Screen: picture.Screen{Width: width}}
	var spans []picture.Span
	for _, s := range phrases {
		spans = append(spans, picture.Phrase(s, picture.Normal))
	}
	p.Flow([]picture.Span{picture.Phrase(head, picture.Normal)}, spans...)
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
		"no-break spaces":                      {8, "", []string{"one two" + picture.NoBreak + "3"}, "one\ntwo 3\n"},
		"signs outside ASCII have their width": {9, "", []string{"ä×… ·│", "x"}, "ä×… ·│ x\n"},
		"nothing":                              {9, "head: ", nil, "head:\n"},
	} {
		assert.Equal(t, test.want, flowed(test.width, test.head, test.phrases...), name)
	}
}

func TestStylesEndWithTheirWord(t *testing.T) {
	p := picture.Page{Screen: picture.Screen{Width: 9, Color: true}}
	p.Wrap("", "one long-er", picture.Red)
	assert.Equal(t, "\x1b[31mone\x1b[m\n\x1b[31mlong-er\x1b[m\n", p.String(), "nothing is left for a pager to carry on")
	assert.Equal(t, "one\nlong-er\n", ansi.Strip(p.String()))
}

func TestASCII(t *testing.T) {
	p := picture.Page{Screen: picture.Screen{Width: 80, ASCII: true}}
	p.Line(picture.Phrase("│━·×│ →…", picture.Bold))
	assert.Equal(t, "|=.x| >~\n", p.String())
}

func TestBlankLinesDoNotPileUp(t *testing.T) {
	p := picture.Page{Screen: picture.Screen{Width: 80}}
	p.Blank()
	p.Line(picture.Text("a", picture.Normal))
	p.Blank()
	p.Blank()
	p.Line(picture.Text("b", picture.Normal))
	assert.Equal(t, "a\n\nb\n", p.String())
}

func TestTable(t *testing.T) {
	head, rows := []string{"NAME", "N", "TEXT"}, [][]string{{"a-long-name", "1", "many words that do not fit on one line"}, {"b", "22", ""}}
	p := picture.Page{Screen: picture.Screen{Width: 45}}
	p.Table(head, rows)
	assert.Equal(t, `NAME         N   TEXT
a-long-name  1   many words that do not fit
                 on one line
b            22
`, p.String())

	p = picture.Page{Screen: picture.Screen{Width: 30}}
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
	assert.Equal(t, picture.Screen{Width: 100}, picture.ScreenOf(&bytes.Buffer{}))
	t.Setenv("COLUMNS", "72")
	assert.Equal(t, picture.Screen{Width: 72}, picture.ScreenOf(&bytes.Buffer{}))
	for _, none := range []string{"many", "0", "-8"} {
		t.Setenv("COLUMNS", none)
		assert.Equal(t, picture.Screen{Width: 100}, picture.ScreenOf(&bytes.Buffer{}))
	}
	file, err := os.Create(filepath.Join(t.TempDir(), "out"))
	require.NoError(t, err)
	defer file.Close()
	assert.False(t, picture.ScreenOf(file).Color)
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("disk full") }

func TestWriteErrors(t *testing.T) {
	err := picture.Screen{Width: 80}.Draw(full{}, func(p *picture.Page) { p.Line(picture.Text("a", picture.Normal)) })
	require.EqualError(t, err, "write: disk full")
	require.EqualError(t, picture.WriteJSON(full{}, 1), "write JSON: disk full")
	require.EqualError(t, picture.WriteYAML(full{}, 1), "write YAML: disk full")
	require.ErrorContains(t, picture.WriteYAML(full{}, make(chan int)), "write YAML: ")
	var b strings.Builder
	require.NoError(t, picture.WriteJSON(&b, map[string]string{"a": "<"}))
	assert.Equal(t, "{\n  \"a\": \"<\"\n}\n", b.String())
}
