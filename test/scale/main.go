package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/tranche-dev/tranche/test/controlplane"
	"github.com/tranche-dev/tranche/test/figures"
)

// scale is what the figures are measured with.
type scale struct {
	// launcher starts clusters.
	launcher controlplane.Launcher
	// controller is the program that is measured.
	controller string
	// nodes is how many the fleet has, GPUs how many each of them has.
	nodes, gpus int
	// schedulerNodes is how many nodes the scheduler chooses from, schedulerRounds how
	// often it is measured with each layout and each kind of pod.
	schedulerNodes, schedulerRounds int
	// planNodes is how many nodes plans switch, plans how many plans there are.
	planNodes, plans int
}

// figures are all figures, in the order in which they are measured.
func (s *scale) figures(ctx context.Context) []figures.Figure {
	return slices.Concat(s.schedulerFigures(ctx), s.fullFigures(ctx), s.fleetFigures(ctx), s.rolloutFigures(ctx), s.uninstallFigures(ctx), s.switchFigures(ctx))
}

func main() {
	s := &scale{}
	flag.StringVar(&s.launcher.Tool, "cluster", "bin/cluster", "the program that starts clusters, as make cluster-tool leaves it")
	flag.StringVar(&s.controller, "controller", "bin/tranche-controller", "the controller's program, as make build leaves it")
	flag.StringVar(&s.launcher.Dir, "dir", ".cluster-scale", "folder for the clusters")
	flag.IntVar(&s.nodes, "nodes", 1000, "how many nodes are relabelled at once")
	flag.IntVar(&s.gpus, "gpus", 8, "how many GPUs each of them has")
	flag.IntVar(&s.schedulerNodes, "scheduler-nodes", 100, "how many nodes the scheduler chooses from")
	flag.IntVar(&s.schedulerRounds, "scheduler-rounds", 10, "how often the scheduler is measured with each layout")
	flag.IntVar(&s.planNodes, "plan-nodes", 5000, "how many nodes plans switch; a tenth of it is measured, too")
	flag.IntVar(&s.plans, "plans", 40, "how many plans there are")
	only := flag.String("only", "", "measure only figures with this text in their name")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	bad, err := s.run(ctx, *only)
	stop()
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(2)
	case bad > 0:
		os.Exit(1)
	}
}

func (s *scale) run(ctx context.Context, only string) (int, error) {
	if os.Geteuid() != 0 {
		return 0, errors.New("only root can start a cluster")
	}
	var err error
	if s.launcher.Dir, err = filepath.Abs(s.launcher.Dir); err != nil {
		return 0, err
	}
	return figures.Measure(ctx, os.Stdout, s.figures(ctx), only)
}
