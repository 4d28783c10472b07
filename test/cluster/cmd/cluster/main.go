// Command cluster runs a real Kubernetes cluster on one Linux machine, from
// parts that it builds from source: no registry, no container engine, nothing
// installed on the host and nothing left on it.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/tranche-dev/tranche/test/cluster/internal/machine"
)

func main() {
	if len(os.Args) == 3 && os.Args[1] == machine.InitCommand {
		if err := machine.Init(os.Args[2]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends us at once
	err := rootCommand().ExecuteContext(ctx)
	stop()
	var status exitError
	switch {
	case errors.As(err, &status):
		os.Exit(int(status))
	case err != nil:
		fmt.Fprintln(os.Stderr, "cluster:", err)
		os.Exit(1)
	}
}

// exitError is the status of a command that was run for the user and has said
// itself what was wrong.
type exitError int

func (s exitError) Error() string { return fmt.Sprintf("ended with status %d", int(s)) }

func rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:           "cluster",
		Short:         "A real Kubernetes cluster on one machine, built from source",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(
		installCommand(), packCommand(), unpackCommand(), pathCommand(),
		upCommand(), downCommand(), statusCommand(), execCommand(), loadCommand(),
	)
	for _, operation := range operations {
		root.AddCommand(operation.command())
	}
	return root
}

// progress prints a line with the time since the program started.
func progress() func(format string, args ...any) {
	began := time.Now()
	return func(format string, args ...any) {
		fmt.Printf("[%5.1fs] %s\n", time.Since(began).Seconds(), fmt.Sprintf(format, args...))
	}
}
