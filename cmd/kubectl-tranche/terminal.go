package main

import (
	"io"
	"os"
	"strconv"

	"golang.org/x/term"
)

// widthElsewhere is the width of a picture that goes into a file or a pipe.
const widthElsewhere = 100

type terminal struct {
	width int
	color bool
}

// terminalOf tells how wide a line may be, and whether colors are welcome.
// COLUMNS wins over what the terminal says of itself: somebody set it.
func terminalOf(out io.Writer) terminal {
	t := terminal{width: widthElsewhere}
	if f, ok := out.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		t.color = os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
		if width, _, err := term.GetSize(int(f.Fd())); err == nil && width > 0 {
			t.width = width
		}
	}
	if columns, err := strconv.Atoi(os.Getenv("COLUMNS")); err == nil && columns > 0 {
		t.width = columns
	}
	return t
}
