// Command simulated-nvml makes the simulated libnvidia-ml.so.1 of each branch of the driver, as
// <folder>/<branch>/libnvidia-ml.so.1.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/tranche-dev/tranche/test/simulator/nvml/libraries"
	"github.com/tranche-dev/tranche/test/simulator/nvml/symbols"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: simulated-nvml FOLDER")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := libraries.Build(ctx, os.Args[1], symbols.Branches()...)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "simulated-nvml:", err)
		os.Exit(1)
	}
}
