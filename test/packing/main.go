package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/tranche-dev/tranche/test/figures"
	"github.com/tranche-dev/tranche/test/packing/options"
	"github.com/tranche-dev/tranche/test/packing/policy"
	"github.com/tranche-dev/tranche/test/packing/workload"
)

// settings are what is replayed.
type settings struct {
	nodes, claims, seeds int
	loads                []float64
	workload, policy     string
	// out is the folder for plots. Without it, none are drawn.
	out string
}

// fleetWithLimits is the number of nodes from which the figures of the policies have limits: a
// smaller fleet is full at times.
const fleetWithLimits = 1500

func main() {
	s := settings{loads: []float64{0.80, 0.95}}
	flags := flag.CommandLine
	options.Number(flags, &s.nodes, "nodes", fleetWithLimits, 1, "how many nodes with 8 GPUs the fleet has")
	options.Number(flags, &s.claims, "claims", 20000, 1, "how many claims arrive in a replay, beside those that are there when it begins")
	options.Number(flags, &s.seeds, "seeds", 3, 1, "how often each replay is repeated with other claims")
	flags.StringVar(&s.workload, "workload", "", "replay only these workloads, separated by commas: trace, inference, notebooks, few-large")
	flags.StringVar(&s.policy, "policy", "", "replay only these policies, separated by commas")
	flags.StringVar(&s.out, "out", "", "write SVG plots to this folder")
	err := options.Parse(flags, os.Args[1:])
	if err == nil {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		err = s.run(ctx)
		stop()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}

func (s settings) run(ctx context.Context) error {
	all, err := workload.All()
	if err != nil {
		return err
	}
	workloads, err := options.Chosen("-workload", s.workload, all, func(w workload.Workload) string { return w.Name })
	if err != nil {
		return err
	}
	policies, err := options.Chosen("-policy", s.policy, policy.All(), func(p policy.Policy) string { return p.Name })
	if err != nil {
		return err
	}
	results, err := s.replayAll(ctx, workloads, policies)
	if err != nil {
		return err
	}
	results.Write(os.Stdout)
	if s.out != "" {
		if err := results.Plots(s.out); err != nil {
			return err
		}
	}
	if s.nodes < fleetWithLimits {
		return nil
	}
	fmt.Println()
	over, err := figures.Measure(ctx, os.Stdout, results.Figures(), "")
	if err == nil && over > 0 {
		err = fmt.Errorf("%d figures are over their limit", over)
	}
	return err
}
