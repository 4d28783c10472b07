package main

import (
	"io"

	"github.com/tranche-dev/tranche/pkg/cluster/read"
)

// clearing writes where there may be a line of progress.
type clearing struct {
	out      io.Writer
	progress read.Progress
}

// Write implements io.Writer.
func (c clearing) Write(text []byte) (int, error) {
	c.progress.Done()
	return c.out.Write(text)
}
