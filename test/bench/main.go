// Command bench measures the figures that the project holds itself to, and
// prints a line for each: what, measured, limit, and as the last word "ok" or
// "over". It ends with status 1 if any is over.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/tranche-dev/tranche/test/figures"
)

// programs are what is measured.
type programs struct {
	// plugin is the program to measure, hook the one for CDI hooks and limitHook that for memory limits
	// that come with it, driver the simulated driver, and libraries the folder of its libraries.
	plugin, hook, limitHook, driver, libraries string
}

// bench is what the figures are measured with.
type bench struct {
	programs
	// dir is a folder on a real disk, removed at the end.
	dir string
}

// figures are all figures, in the order in which they are measured.
func (b *bench) figures(ctx context.Context) []figures.Figure {
	var all []figures.Figure
	for _, some := range [][]figures.Figure{
		b.prepareFigures(ctx),
		b.parallelFigures(),
		b.sizeFigures(),
		b.allocationFigures(),
		b.severalFigures(),
		b.churnFigures(),
		b.amdFigures(ctx),
		b.shareFigures(),
		b.limitHookFigures(),
		b.daemonFigures(),
		b.usageFigures(),
		b.pluginFigures(ctx),
	} {
		all = append(all, some...)
	}
	return all
}

func main() {
	b := &bench{}
	flag.StringVar(&b.plugin, "plugin", "bin/tranche-kubelet-plugin", "the kubelet plugin, as make build leaves it")
	flag.StringVar(&b.hook, "hook", "bin/nvidia-cdi-hook", "the program for CDI hooks that the plugin installs")
	flag.StringVar(&b.limitHook, "limit-hook", "bin/tranche-hook", "the program for memory limits that the plugin installs")
	flag.StringVar(&b.driver, "driver", "bin/simulated-driver", "the simulated driver, as make simulated-driver leaves it")
	flag.StringVar(&b.libraries, "libraries", "bin/simulated-nvml", "folder of its libraries")
	folder := flag.String("dir", "/var/tmp", "folder on a real disk for everything that is written")
	only := flag.String("only", "", "measure only figures with this text in their name")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	bad, err := b.run(ctx, *folder, *only)
	stop()
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(2)
	case bad > 0:
		os.Exit(1)
	}
}

// run measures the figures and returns how many are over.
func (b *bench) run(ctx context.Context, folder, only string) (bad int, err error) {
	// Short: paths of sockets are limited to 108 characters.
	if b.dir, err = os.MkdirTemp(folder, "tr"); err != nil {
		return 0, err
	}
	defer func() { _ = os.RemoveAll(b.dir) }()
	return figures.Measure(ctx, os.Stdout, b.figures(ctx), only)
}
