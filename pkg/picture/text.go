package picture

import (
	"strings"
	"unicode/utf8"
)

// style is how a span looks on a terminal with colors. Nothing is said by color
// alone: without it the text reads the same.
type style string

const (
	normal  style = ""
	bold    style = "1"
	dim     style = "2"
	boxed   style = "97;44" // a partition: white on blue,
	boxed2  style = "30;46" // and its neighbour black on cyan, so that the two do not run together
	boxedGr style = "97;45" // a whole card: white on magenta
	green   style = "32"
	yellow  style = "33"
	red     style = "31"
)

type span struct {
	text  string
	style style
}

func plainText(s string) span { return span{text: s} }

func (s span) width() int { return utf8.RuneCountInString(s.text) }

// page collects lines of text.
type page struct {
	out   strings.Builder
	width int
	color bool
	ascii bool
}

// asciiText replaces each sign by one of the same width, so that bars stay
// aligned.
var asciiText = strings.NewReplacer("│", "|", "┊", ":", "━", "=", "·", ".", "×", "x", "…", "~", "→", ">")

// keep is a blank at which a line is not broken.
const keep = "\u00a0"

func (p *page) line(spans ...span) {
	for i, s := range spans {
		text := s.text
		if i == len(spans)-1 && s.style == normal {
			text = strings.TrimRight(text, " ")
		}
		text = strings.ReplaceAll(text, keep, " ")
		if p.ascii {
			text = asciiText.Replace(text)
		}
		if p.color && s.style != normal {
			text = "\x1b[" + string(s.style) + "m" + text + "\x1b[0m"
		}
		p.out.WriteString(text)
	}
	p.out.WriteByte('\n')
}

// blank separates; two in a row are one, and none comes first.
func (p *page) blank() {
	if s := p.out.String(); s != "" && !strings.HasSuffix(s, "\n\n") {
		p.out.WriteByte('\n')
	}
}

// flow writes the head and, behind it, the words, and continues under the first
// word when the line is full. A word is never broken: people copy names.
func (p *page) flow(head []span, words []span) {
	hang := 0
	for _, s := range head {
		hang += s.width()
	}
	line, at := head, hang
	for i, w := range splitTooWide(words, p.width-hang) {
		space := 1
		if i == 0 || at == hang {
			space = 0
		}
		if at+space+w.width() > p.width && at > hang {
			p.line(line...)
			line, at, space = []span{plainText(strings.Repeat(" ", hang))}, hang, 0
		}
		if space > 0 {
			line = append(line, plainText(" "))
		}
		line = append(line, w)
		at += space + w.width()
	}
	p.line(line...)
}

// splitTooWide breaks up phrases that would not fit on a line of their own.
func splitTooWide(phrases []span, width int) []span {
	var out []span
	for _, s := range phrases {
		if s.width() <= width {
			out = append(out, s)
			continue
		}
		out = append(out, words(s.text, s.style)...)
	}
	return out
}

// words splits a sentence into words of one style.
func words(text string, st style) []span {
	var out []span
	for _, w := range strings.Split(text, " ") {
		out = append(out, span{w, st})
	}
	return out
}

func pad(s string, width int) string {
	return s + strings.Repeat(" ", max(0, width-utf8.RuneCountInString(s)))
}

// listed joins names into words that may be wrapped after each comma.
func listed(names []string, st style) []span {
	var out []span
	for i, n := range names {
		if i < len(names)-1 {
			n += ","
		}
		out = append(out, span{n, st})
	}
	return out
}
