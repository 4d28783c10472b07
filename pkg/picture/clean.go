package picture

import (
	"io"
	"os"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Clean writes text to a file without the control characters that programs on nodes and tenants
// can put into what they report: they could change what the terminal shows. Line feeds, tabs and
// colors pass.
type Clean struct{ File *os.File }

var _ io.Writer = Clean{}

// Write writes a text, which has each sequence of control characters whole.
func (c Clean) Write(p []byte) (int, error) {
	if _, err := c.File.WriteString(Printable(string(p))); err != nil {
		return 0, err //nolint:wrapcheck // it is the file's error
	}
	return len(p), nil
}

// Fd returns the file's descriptor: a terminal remains one.
func (c Clean) Fd() uintptr { return c.File.Fd() }

// color is what sets a color.
var color = regexp.MustCompile(`^\x1b\[[0-9;:]*m`)

// Printable replaces the control characters of a text, apart from line feeds, tabs and colors.
func Printable(s string) string { return printable(s, true) }

// printable replaces colors, too, unless they pass.
func printable(s string, colors bool) string {
	if strings.IndexFunc(s, hidden) < 0 && utf8.ValidString(s) {
		return s
	}
	var b strings.Builder
	for s != "" {
		text := ""
		if colors {
			text = color.FindString(s)
		}
		size := len(text)
		if size == 0 {
			var r rune
			r, size = utf8.DecodeRuneInString(s)
			text = s[:size]
			if hidden(r) {
				text = string(utf8.RuneError)
			}
		}
		b.WriteString(text)
		s = s[size:]
	}
	return b.String()
}

// hidden reports whether a character is not to be sent to a terminal.
func hidden(r rune) bool {
	return unicode.IsControl(r) && r != '\n' && r != '\t' || unicode.Is(unicode.Bidi_Control, r) || r == utf8.RuneError
}
