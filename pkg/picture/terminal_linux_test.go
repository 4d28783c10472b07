package picture_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/tranche-dev/tranche/pkg/picture"
)

func TestScreenOfATerminal(t *testing.T) {
	terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	require.NoError(t, err)
	defer terminal.Close()
	for _, test := range []struct {
		size                   unix.Winsize
		term, noColor, columns string
		want                   picture.Screen
	}{
		{unix.Winsize{}, "xterm", "", "", picture.Screen{Width: 100, Live: true, Color: true}},
		{unix.Winsize{Col: 60, Row: 24}, "xterm", "", "", picture.Screen{Width: 60, Height: 24, Live: true, Color: true}},
		{unix.Winsize{Col: 60, Row: 24}, "xterm", "1", "72", picture.Screen{Width: 72, Height: 24, Live: true}},
		{unix.Winsize{Col: 60, Row: 24}, "dumb", "", "", picture.Screen{Width: 60, Height: 24}},
	} {
		require.NoError(t, unix.IoctlSetWinsize(int(terminal.Fd()), unix.TIOCSWINSZ, &test.size))
		t.Setenv("TERM", test.term)
		t.Setenv("NO_COLOR", test.noColor)
		t.Setenv("COLUMNS", test.columns)
		assert.Equal(t, test.want, picture.ScreenOf(terminal))
	}
}
