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
	"strings"
	"syscall"

	"k8s.io/client-go/rest"

	"github.com/tranche-dev/tranche/test/controlplane"
)

// settings are what is measured.
type settings struct {
	launcher controlplane.Launcher
	policy   string
	// fillNodes are filled by pods, rounds times. 0 rounds: they are not.
	fillNodes, pods, rounds int
	// nodes are those of the replays, claims how many arrive in each, batch how many at once.
	nodes, claims, batch int
	workload, load       string
	// out is the folder for plots, profiles the one for CPU profiles of the scheduler.
	out, profiles string
}

func main() {
	var s settings
	flag.StringVar(&s.launcher.Tool, "cluster", "bin/cluster", "the program that starts clusters, as make cluster-tool leaves it")
	flag.StringVar(&s.launcher.Dir, "dir", ".cluster-packing", "folder for the clusters")
	flag.StringVar(&s.policy, "policy", "", "measure only these policies, separated by commas. Without this flag, replays leave out those that cost the scheduler much CPU")
	flag.IntVar(&s.rounds, "rounds", 1, "how often empty nodes are filled by each policy. 0: not at all")
	flag.IntVar(&s.fillNodes, "fill-nodes", 100, "how many nodes with 8 × H100 are filled")
	flag.IntVar(&s.pods, "pods", 200, "how many pods with a 1g.10gb fill them")
	flag.IntVar(&s.claims, "claims", 500, "how many claims arrive in a replay, beside those that are there when it begins. 0: nothing is replayed")
	flag.IntVar(&s.nodes, "nodes", 300, "how many nodes with 8 × H100 a replay has")
	flag.IntVar(&s.batch, "batch", 25, "how many claims arrive at once in a replay")
	flag.StringVar(&s.workload, "workload", "trace", "the workload that is replayed")
	flag.StringVar(&s.load, "load", "0.80,0.95", "the demand in replays, as shares of the fleet, separated by commas")
	flag.StringVar(&s.out, "out", "", "write SVG plots of the replays to this folder")
	flag.StringVar(&s.profiles, "profiles", "", "write CPU profiles of the scheduler while it fills nodes to this folder, for go tool pprof")
	flag.Parse()
	// Warnings are for whoever writes manifests.
	rest.SetDefaultWarningHandler(rest.NoWarnings{})

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := s.measure(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}

func (s *settings) measure(ctx context.Context) error {
	if os.Geteuid() != 0 {
		return errors.New("only root can start a cluster")
	}
	var err error
	if s.launcher.Dir, err = filepath.Abs(s.launcher.Dir); err != nil {
		return err
	}
	chosen := policies
	if s.policy != "" {
		names := strings.Split(s.policy, ",")
		chosen = slices.DeleteFunc(slices.Clone(policies), func(p policy) bool { return !slices.Contains(names, p.name) })
		if len(chosen) != len(names) {
			return fmt.Errorf("-policy: one of %q is not known", names)
		}
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
	results, err := s.replayAll(ctx, chosen)
	if err != nil {
		return err
	}
	results.Write(os.Stdout)
	if s.out == "" {
		return nil
	}
	return results.Plots(s.out)
}
