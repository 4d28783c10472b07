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
	cmd := newCommand(picture.Clean{File: os.Stdout})
	cmd.SetErr(picture.Clean{File: os.Stderr})
	err := cmd.ExecuteContext(read.WithProgress(ctx, progress))
	progress.Done()
	stop()
	if err != nil {
		fmt.Fprintln(picture.Clean{File: os.Stderr}, "error:", err)
		os.Exit(exitCode(err))
	}
}
