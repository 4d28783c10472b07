package terminal

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"

	"golang.org/x/term"
)

// defaultWidth is the width of text that is written to a file or a pipe.
const defaultWidth = 100

// Screen is what text is written for.
type Screen struct {
	// Width is the number of columns.
	Width int
	Color bool
	// ASCII replaces the characters that are not ASCII.
	ASCII bool
	// Live: what was written can be replaced.
	Live bool
}

// ScreenOf returns the screen that a program writes to. The environment variable COLUMNS
// overrides the width, and NO_COLOR turns colors off.
func ScreenOf(out io.Writer) Screen {
	s := Screen{Width: defaultWidth}
	if f, ok := out.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		s.Live = os.Getenv("TERM") != "dumb"
		s.Color = s.Live && os.Getenv("NO_COLOR") == ""
		if width, _, err := term.GetSize(int(f.Fd())); err == nil && width > 0 {
			s.Width = width
		}
	}
	if columns, err := strconv.Atoi(os.Getenv("COLUMNS")); err == nil && columns > 0 {
		s.Width = columns
	}
	return s
}

// WriteJSON writes a value as indented JSON.
func WriteJSON(out io.Writer, v any) error {
	enc := json.NewEncoder(out)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return fmt.Errorf("write JSON: %w", err)
	}
	return nil
}
