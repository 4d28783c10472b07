package picture

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"

	"golang.org/x/term"
	"sigs.k8s.io/yaml"
)

// defaultWidth is the width of text that is written to a file or a pipe.
const defaultWidth = 100

// Screen is what text is written for.
type Screen struct {
	// Width is the number of columns.
	Width int
	// Height is the number of lines, 0 if there is no limit.
	Height int
	Color  bool
	// ASCII replaces the characters that are not ASCII.
	ASCII bool
	// Live is true if what was written can be replaced.
	Live bool
}

// ScreenOf returns the screen that a program writes to. The environment variable COLUMNS
// overrides the width, and NO_COLOR turns colors off.
func ScreenOf(out io.Writer) Screen {
	s := Screen{Width: defaultWidth}
	if f, ok := out.(interface{ Fd() uintptr }); ok && term.IsTerminal(int(f.Fd())) {
		s.Live = os.Getenv("TERM") != "dumb"
		s.Color = s.Live && os.Getenv("NO_COLOR") == ""
		if width, height, err := term.GetSize(int(f.Fd())); err == nil && width > 0 {
			s.Width, s.Height = width, height
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

// WriteYAML writes a value as YAML, with the names of its JSON.
func WriteYAML(out io.Writer, v any) error {
	data, err := yaml.Marshal(v)
	if err == nil {
		_, err = out.Write(data)
	}
	if err != nil {
		return fmt.Errorf("write YAML: %w", err)
	}
	return nil
}
