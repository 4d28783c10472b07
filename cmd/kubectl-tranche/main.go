package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"

	"github.com/tranche-dev/tranche/pkg/cluster/read"
	"github.com/tranche-dev/tranche/pkg/terminal"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	progress := terminal.NewProgress(os.Stderr)
	err := newCommand(terminal.Clean{File: os.Stdout}).ExecuteContext(read.WithProgress(ctx, progress))
	progress.Done()
	stop()
	if err != nil {
		fmt.Fprintln(terminal.Clean{File: os.Stderr}, "error:", err)
		os.Exit(1)
	}
}
