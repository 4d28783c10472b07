package picture

import (
	"fmt"
	"io"
	"strings"

	"github.com/charmbracelet/x/ansi"
)

// Live replaces what it has drawn before on a terminal.
type Live struct {
	Out io.Writer
	// screen is what is drawn on, if it is known.
	screen Screen
	// lines is how many lines the last picture has.
	lines int
	// last is the last line of Tell.
	last string
}

// Tell draws a picture in place of the last one. Where nothing can be replaced it writes the line
// instead, unless that is the same as the last time.
func (l *Live) Tell(s Screen, line string, draw func(*Page)) error {
	if s.Live {
		return l.Redraw(s, draw)
	}
	if line == l.last {
		return nil
	}
	l.last = line
	if _, err := fmt.Fprintln(l.Out, line); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	return nil
}

// Redraw draws a picture in place of the last one.
func (l *Live) Redraw(s Screen, draw func(*Page)) error {
	p := Page{Screen: s}
	draw(&p)
	l.On(s)
	return l.Draw(p.String())
}

// On sets the size of the screen, before each picture: it can change.
func (l *Live) On(s Screen) {
	if l.screen.Width != 0 && l.screen.Width != s.Width {
		// The lines may have been wrapped, so that nobody knows where they are.
		l.lines = -1
	}
	l.screen = s
}

// Draw draws a picture of whole lines, cut to the width of the screen. Of a picture with more lines
// than the screen, it draws the first.
func (l *Live) Draw(picture string) error {
	out := l.Out
	if clean, ok := out.(Clean); ok {
		out, picture = clean.File, Printable(picture)
	}
	picture = l.cut(picture)
	var b strings.Builder
	switch {
	case l.lines > 0:
		b.WriteString("\r" + ansi.CursorUp(l.lines) + ansi.EraseScreenBelow)
	case l.lines < 0:
		b.WriteString(ansi.CursorHomePosition + ansi.EraseEntireScreen)
	}
	if lines := strings.SplitAfter(picture, "\n"); l.screen.Height > 2 && len(lines) > l.screen.Height {
		shown := l.screen.Height - 2
		picture = strings.Join(lines[:shown], "") + fmt.Sprintf("(%d more lines: make the terminal larger)\n", len(lines)-1-shown)
	}
	b.WriteString(picture)
	l.lines = strings.Count(picture, "\n")
	if _, err := io.WriteString(out, b.String()); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	return nil
}

// cut cuts the lines that the terminal would wrap. Tabs have no certain width.
func (l *Live) cut(picture string) string {
	if l.screen.Width == 0 {
		return picture
	}
	tail := "…"
	if l.screen.ASCII {
		tail = toASCII.Replace(tail)
	}
	lines := strings.Split(strings.ReplaceAll(picture, "\t", " "), "\n")
	for i, line := range lines {
		lines[i] = ansi.Truncate(line, l.screen.Width, tail)
	}
	return strings.Join(lines, "\n")
}
