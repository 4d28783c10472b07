package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"

	"github.com/tranche-dev/tranche/pkg/cluster/read"
	"github.com/tranche-dev/tranche/pkg/picture"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	progress := picture.NewProgress(os.Stderr)
	err := newCommand(picture.Clean{File: os.Stdout}).ExecuteContext(read.WithProgress(ctx, progress))
	progress.Done()
	stop()
	if err != nil {
		fmt.Fprintln(picture.Clean{File: os.Stderr}, "error:", err)
		os.Exit(exitCode(err))
	}
}
