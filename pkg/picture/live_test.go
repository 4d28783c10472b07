package picture

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestLiveReplacesWhatItDrew(t *testing.T) {
	var b strings.Builder
	l := Live{Out: &b}
	require.NoError(t, l.Draw("one\ntwo\n"))
	require.NoError(t, l.Draw("three\n"))
	require.NoError(t, l.Draw("four\n"))
	assert.Equal(t, "one\ntwo\n\r\x1b[2A\x1b[Jthree\n\r\x1b[A\x1b[Jfour\n", b.String())
}

func TestLiveOnASmallScreen(t *testing.T) {
	var b strings.Builder
	l := Live{Out: &b}
	l.On(Screen{Width: 20, Height: 4})
	require.NoError(t, l.Draw("1\n2\n3\n"))
	assert.Equal(t, "1\n2\n3\n", b.String(), "it fits")
	b.Reset()
	require.NoError(t, l.Draw("1\n2\n3\n4\n5\n"))
	assert.Equal(t, "\r\x1b[3A\x1b[J1\n2\n(3 more lines: make the terminal larger)\n", b.String())
	b.Reset()
	l.On(Screen{Width: 30, Height: 40})
	require.NoError(t, l.Draw("1\n"))
	assert.Equal(t, "\x1b[H\x1b[2J1\n", b.String(), "the screen has another width")
}

// A line that the terminal would wrap would be two where one is counted.
func TestLiveCutsWideLines(t *testing.T) {
	var b strings.Builder
	l := Live{Out: &b}
	l.On(Screen{Width: 8})
	require.NoError(t, l.Draw("node-a\tReady\n\x1b[1mnode-bcdef\x1b[m\n12345678\n"))
	assert.Equal(t, "node-a …\n\x1b[1mnode-bc…\x1b[m\n12345678\n", b.String())
	b.Reset()
	l.On(Screen{Width: 8, ASCII: true})
	require.NoError(t, l.Draw("123456789\n"))
	assert.Equal(t, "\r\x1b[3A\x1b[J1234567~\n", b.String())
}

// Where nothing can be replaced, a line is written once for each change.
func TestTell(t *testing.T) {
	var b strings.Builder
	l := Live{Out: &b}
	picture := func(p *Page) { p.Wrap("", "a picture of two lines", Normal) }
	for _, line := range []string{"one", "one", "two", "one"} {
		require.NoError(t, l.Tell(Screen{Width: 12}, line, picture))
	}
	assert.Equal(t, "one\ntwo\none\n", b.String())
	b.Reset()
	screen := Screen{Width: 12, Live: true}
	require.NoError(t, l.Tell(screen, "one", picture))
	require.NoError(t, l.Redraw(screen, picture))
	assert.Equal(t, "a picture of\ntwo lines\n\r\x1b[2A\x1b[Ja picture of\ntwo lines\n", b.String())
	b.Reset()
	require.NoError(t, l.Redraw(Screen{Width: 40, Live: true}, picture))
	assert.Equal(t, "\x1b[H\x1b[2Ja picture of two lines\n", b.String())
	l.Out = failing{}
	require.ErrorIs(t, l.Tell(Screen{}, "three", picture), os.ErrClosed)
	require.ErrorIs(t, l.Tell(screen, "three", picture), os.ErrClosed)
}

type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, os.ErrClosed }

func TestProgress(t *testing.T) {
	at := time.Unix(0, 0)
	for live, want := range map[bool]string{
		true:  "\r\x1b[Kread 2 of …\r\x1b[Kread 4\r\x1b[K",
		false: "read 2 of many\nread 4\n",
	} {
		var b strings.Builder
		p := NewProgress(&b)
		p.live, p.width, p.quiet, p.every, p.now, p.started = live, 12, time.Minute, time.Second, func() time.Time { return at }, at
		p.Say("read 1")
		at = at.Add(time.Minute)
		p.Say("read %d of %s", 2, "many")
		p.Say("read 3")
		at = at.Add(time.Second)
		p.Say("read 4")
		p.Done()
		p.Done()
		p.Say("something else, at once")
		assert.Equal(t, want, b.String())
	}
}
