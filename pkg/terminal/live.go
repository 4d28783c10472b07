package terminal

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
}

// On tells the size of the screen, before each picture: it can change.
func (l *Live) On(s Screen) {
	if l.screen.Width != 0 && l.screen.Width != s.Width {
		// The lines may have been wrapped, so that nobody knows where they are.
		l.lines = -1
	}
	l.screen = s
}

// Draw draws a picture of whole lines, each of which fits the width of the terminal. Of a picture
// with more lines than the screen, it draws the first.
func (l *Live) Draw(picture string) error {
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
	out := l.Out
	if clean, ok := out.(Clean); ok {
		out, picture = clean.File, Printable(picture)
	}
	b.WriteString(picture)
	l.lines = strings.Count(picture, "\n")
	if _, err := io.WriteString(out, b.String()); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	return nil
}
