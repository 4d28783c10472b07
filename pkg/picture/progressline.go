package picture

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/charmbracelet/x/ansi"
)

// Progress reports how far a long command is: on a terminal in one line that it replaces, otherwise in a
// line now and then. It reports nothing for short commands.
type Progress struct {
	out   io.Writer
	live  bool
	width int
	// quiet is how long nothing is reported at first, every the least time between two lines.
	quiet, every time.Duration
	now          func() time.Time

	mu      sync.Mutex // for the rest
	started time.Time
	last    time.Time
	drawn   bool
}

// NewProgress writes to a terminal or to a file, usually to standard error.
func NewProgress(out io.Writer) *Progress {
	s := ScreenOf(out)
	p := &Progress{out: out, live: s.Live, width: s.Width, now: time.Now, quiet: time.Second, every: 100 * time.Millisecond, started: time.Now()}
	if !p.live {
		p.quiet, p.every = 10*time.Second, 10*time.Second
	}
	return p
}

// Say reports how far the command is.
func (p *Progress) Say(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.now()
	if now.Sub(p.started) < p.quiet || now.Sub(p.last) < p.every {
		return
	}
	p.last, p.drawn = now, true
	line := strings.ReplaceAll(fmt.Sprintf(format, args...), "\n", " ")
	if p.live {
		line = "\r" + ansi.EraseLineRight + Cut(line, p.width-1)
	} else {
		line += "\n"
	}
	// A command does not fail because its progress cannot be written.
	_, _ = io.WriteString(p.out, line)
}

// Done removes the line from the terminal, before something else is written.
func (p *Progress) Done() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.live && p.drawn {
		_, _ = io.WriteString(p.out, "\r"+ansi.EraseLineRight)
	}
	p.drawn = false
}
