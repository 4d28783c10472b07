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
	// lines is how many lines the last picture has.
	lines int
}

// Draw draws a picture of whole lines, each of which fits the width of the terminal.
func (l *Live) Draw(picture string) error {
	var b strings.Builder
	if l.lines > 0 {
		b.WriteString("\r" + ansi.CursorUp(l.lines) + ansi.EraseScreenBelow)
	}
	b.WriteString(picture)
	l.lines = strings.Count(picture, "\n")
	if _, err := io.WriteString(l.Out, b.String()); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	return nil
}
