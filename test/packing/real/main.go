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

	"k8s.io/client-go/rest"

	"github.com/tranche-dev/tranche/test/controlplane"
	"github.com/tranche-dev/tranche/test/packing/options"
	"github.com/tranche-dev/tranche/test/packing/workload"
)

// settings are what is measured.
type settings struct {
	launcher controlplane.Launcher
	policy   string
	// fillNodes are filled by pods, rounds times. 0 rounds: they are not.
	fillNodes, pods, rounds int
	// nodes are those of the replays, claims how many arrive in each, batch how many at once.
	nodes, claims, batch int
	workload             string
	loads                options.Loads
	// out is the folder for plots.
	out string
}

func main() {
	s := settings{loads: options.Loads{0.80, 0.95}}
	flags := flag.CommandLine
	flags.StringVar(&s.launcher.Tool, "cluster", "bin/cluster", "the program that starts clusters, as make cluster-tool leaves it")
	flags.StringVar(&s.launcher.Dir, "dir", ".cluster-packing", "folder for the clusters")
	flags.StringVar(&s.policy, "policy", "", "measure only these policies, separated by commas. Without this flag, replays leave out those that cost the scheduler much CPU")
	options.Number(flags, &s.rounds, "rounds", 1, 0, "how often empty nodes are filled by each policy. 0: not at all")
	options.Number(flags, &s.fillNodes, "fill-nodes", 100, 1, "how many nodes with 8 × H100 are filled")
	options.Number(flags, &s.pods, "pods", 200, 1, "how many pods with a 1g.10gb fill them")
	options.Number(flags, &s.claims, "claims", 500, 0, "how many claims arrive in a replay, beside those that are there when it begins. 0: nothing is replayed")
	options.Number(flags, &s.nodes, "nodes", 300, 1, "how many nodes with 8 × H100 a replay has")
	options.Number(flags, &s.batch, "batch", 25, 1, "how many claims arrive at once in a replay")
	flags.StringVar(&s.workload, "workload", "trace", "the workloads that are replayed, separated by commas. Empty: all")
	flags.Var(&s.loads, "load", "the demand in replays, as shares of the fleet, separated by commas")
	flags.StringVar(&s.out, "out", "", "write SVG plots of the replays to this folder")
	// Warnings are for whoever writes manifests.
	rest.SetDefaultWarningHandler(rest.NoWarnings{})
	err := options.Parse(flags, os.Args[1:])
	if err == nil {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		err = s.measure(ctx)
		stop()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}

func (s *settings) measure(ctx context.Context) error {
	chosen, err := options.Chosen("-policy", s.policy, policies, func(p policy) string { return p.name })
	if err != nil {
		return err
	}
	all, err := workload.All()
	if err != nil {
		return err
	}
	workloads, err := options.Chosen("-workload", s.workload, all, func(w workload.Workload) string { return w.Name })
	if err != nil {
		return err
	}
	if os.Geteuid() != 0 {
		return errors.New("only root can start a cluster")
	}
	if s.launcher.Dir, err = filepath.Abs(s.launcher.Dir); err != nil {
		return err
	}
	if s.rounds > 0 {
		table, err := s.fillAll(ctx, chosen)
		if err != nil {
			return err
		}
		fmt.Println(table)
	}
	if s.claims == 0 {
		return nil
	}
	if s.policy == "" {
		chosen = slices.DeleteFunc(slices.Clone(chosen), func(p policy) bool { return p.slow })
	}
	results, err := s.replayAll(ctx, workloads, chosen)
	if err != nil {
		return err
	}
	results.Write(os.Stdout)
	if s.out == "" {
		return nil
	}
	return results.Plots(s.out)
}
