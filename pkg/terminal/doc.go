// Package terminal renders text for a terminal of a given width: paragraphs that hang
// under their heads, tables, and colors. Names and commands are never broken, since
// people copy them.
//
// Widths, wrapping and styles are those of github.com/charmbracelet/x/ansi.
package terminal
