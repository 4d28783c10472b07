package main

import (
	"context"

	"github.com/tranche-dev/tranche/pkg/terminal"
)

type progressKey struct{}

// withProgress has whatever takes long with the context tell how far it is.
func withProgress(ctx context.Context, p *terminal.Progress) context.Context {
	return context.WithValue(ctx, progressKey{}, p)
}

// progressOf is the progress of a context. There may be none: nil says nothing.
func progressOf(ctx context.Context) *terminal.Progress {
	p, _ := ctx.Value(progressKey{}).(*terminal.Progress)
	return p
}
