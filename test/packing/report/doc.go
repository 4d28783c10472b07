// Package report prints what replays found, as Markdown tables, and draws it.
package report
