package picture

import (
	"fmt"
	"io"
	"strings"

	"github.com/charmbracelet/x/ansi"

	"github.com/tranche-dev/tranche/pkg/text"
)

// Style is how a span looks on a screen with colors. Nothing is said by color alone.
type Style struct{ ansi ansi.Style }

// The styles.
var (
	Normal = Style{}
	Bold   = Style{ansi.NewStyle().Bold()}
	Dim    = Style{ansi.NewStyle().Faint()}
	Green  = Style{ansi.NewStyle().ForegroundColor(ansi.Green)}
	Yellow = Style{ansi.NewStyle().ForegroundColor(ansi.Yellow)}
	Red    = Style{ansi.NewStyle().ForegroundColor(ansi.Red)}
)

// On returns a style of dark or bright text on a colored background.
func On(text, background ansi.BasicColor) Style {
	return Style{ansi.NewStyle().ForegroundColor(text).BackgroundColor(background)}
}

// Span is text in one style.
type Span struct {
	text  string
	style Style
	keep  bool
}

// Text returns a span that is wrapped between words.
func Text(text string, style Style) Span { return Span{text, style, false} }

// Phrase returns a span that is kept on one line if it fits there.
func Phrase(text string, style Style) Span { return Span{text, style, true} }

// List lists phrases, separated by commas.
func List(all []string, style Style) []Span {
	out := make([]Span, 0, len(all))
	for i, s := range all {
		if i < len(all)-1 {
			s += ","
		}
		out = append(out, Phrase(s, style))
	}
	return out
}

// NoBreak is a space at which a line is not broken.
const NoBreak = "\u00a0"

// noBreakHyphen stands for a hyphen, at which ansi.Wordwrap would break names.
const noBreakHyphen = "\u2011"

var (
	guard   = strings.NewReplacer("-", noBreakHyphen)
	unguard = strings.NewReplacer(noBreakHyphen, "-", NoBreak, " ")
	// toASCII replaces characters by others of the same width, so that columns stay
	// aligned.
	toASCII = strings.NewReplacer("│", "|", "┊", ":", "━", "=", "·", ".", "×", "x", "…", "~", "→", ">")
)

// Width returns the number of columns that a text takes.
func Width(text string) int { return ansi.StringWidth(text) }

// Pad fills a text with spaces to a width.
func Pad(text string, width int) string {
	return text + strings.Repeat(" ", max(0, width-Width(text)))
}

// Cut shortens a text to a width, with an ellipsis.
func Cut(text string, width int) string { return ansi.Truncate(text, width, "…") }

// Page collects lines of text. The zero value is not useful: its Screen needs a width.
type Page struct {
	Screen
	out strings.Builder
}

// Draw writes what draw puts on a page.
func (s Screen) Draw(out io.Writer, draw func(*Page)) error {
	p := Page{Screen: s}
	draw(&p)
	if _, err := io.WriteString(out, p.out.String()); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	return nil
}

// String returns the page.
func (p *Page) String() string { return p.out.String() }

// Len returns the length of what was written, in bytes.
func (p *Page) Len() int { return p.out.Len() }

// Line writes spans without spaces between them, and without wrapping.
func (p *Page) Line(spans ...Span) {
	p.write(p.paint(spans))
}

// Blank separates paragraphs by one empty line. None comes first.
func (p *Page) Blank() {
	if s := p.out.String(); s != "" && !strings.HasSuffix(s, "\n\n") {
		p.out.WriteByte('\n')
	}
}

// Flow writes a head and, behind it, the spans with spaces between them. When a line is
// full it continues under the first span.
func (p *Page) Flow(head []Span, spans ...Span) {
	first := p.paint(head)
	hang := Width(first)
	room := max(1, p.Width-hang)
	var words []string
	for _, s := range spans {
		text := s.text
		if s.keep && Width(text) <= room {
			text = strings.ReplaceAll(text, " ", NoBreak)
		}
		for word := range strings.FieldsFuncSeq(text, func(r rune) bool { return r == ' ' || r == '\n' }) {
			words = append(words, p.style(word, s.style))
		}
	}
	wrapped := ansi.Wordwrap(guard.Replace(strings.Join(words, " ")), room, "")
	p.write(first + strings.ReplaceAll(wrapped, "\n", "\n"+strings.Repeat(" ", hang)))
}

// Unread writes what could not be read.
func (p *Page) Unread(all []text.Unread) {
	for _, sentence := range text.Sentences(all) {
		p.Blank()
		p.Flow([]Span{Phrase("Note: ", Yellow)}, Text(sentence, Normal))
	}
}

// Wrap writes text behind a head.
func (p *Page) Wrap(head, text string, style Style) {
	p.Flow([]Span{Phrase(head, style)}, Text(text, style))
}

func (p *Page) paint(spans []Span) string {
	var b strings.Builder
	for _, s := range spans {
		b.WriteString(p.style(s.text, s.style))
	}
	return b.String()
}

// style adds the style to a text, which may come from others and has none itself.
func (p *Page) style(text string, s Style) string {
	text = printable(text, false)
	if !p.Color || text == "" {
		return text
	}
	return s.ansi.Styled(text)
}

func (p *Page) write(text string) {
	text = unguard.Replace(text)
	if p.ASCII {
		text = toASCII.Replace(text)
	}
	for line := range strings.SplitSeq(text, "\n") {
		p.out.WriteString(strings.TrimRight(line, " ") + "\n")
	}
}
