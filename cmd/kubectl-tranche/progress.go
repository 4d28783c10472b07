package main

import (
	"context"
	"io"

	"github.com/tranche-dev/tranche/pkg/cluster/read"
	"github.com/tranche-dev/tranche/pkg/terminal"
)

type progressKey struct{}

// withProgress has whatever takes long with the context tell how far it is.
func withProgress(ctx context.Context, p *terminal.Progress) context.Context {
	return read.WithProgress(context.WithValue(ctx, progressKey{}, p), p)
}

// progressOf is the progress of a context. There may be none: nil says nothing.
func progressOf(ctx context.Context) *terminal.Progress {
	p, _ := ctx.Value(progressKey{}).(*terminal.Progress)
	return p
}

// clearing writes where there may be a line of progress.
type clearing struct {
	out      io.Writer
	progress *terminal.Progress
}

// Write implements io.Writer.
func (c clearing) Write(text []byte) (int, error) {
	c.progress.Done()
	return c.out.Write(text)
}
