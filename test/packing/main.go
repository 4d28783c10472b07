package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
)

// settings are what is replayed.
type settings struct {
	nodes, claims, seeds int
	loads                []float64
	workload, policy     string
}

func main() {
	var s settings
	flag.IntVar(&s.nodes, "nodes", 1500, "how many nodes with 8 GPUs the fleet has")
	flag.IntVar(&s.claims, "claims", 20000, "how many claims arrive in a replay, beside those that are there when it begins")
	flag.IntVar(&s.seeds, "seeds", 3, "how often each replay is repeated with other claims")
	flag.StringVar(&s.workload, "workload", "", "replay only this workload: trace, inference or notebooks")
	flag.StringVar(&s.policy, "policy", "", "replay only this policy")
	podList := flag.String("derive", "", "write the table of the trace from this openb_pod_list_default.csv, and do nothing else")
	flag.Parse()
	s.loads = []float64{0.80, 0.95}

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, s, *podList)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, s settings, podList string) error {
	if podList != "" {
		in, err := os.Open(podList)
		if err != nil {
			return err
		}
		defer in.Close()
		shapes, err := derive(in)
		if err != nil {
			return fmt.Errorf("%s: %w", podList, err)
		}
		return writeTable(os.Stdout, shapes)
	}
	loads, err := workloads()
	if err != nil {
		return err
	}
	loads = slices.DeleteFunc(loads, func(w workload) bool { return s.workload != "" && w.name != s.workload })
	chosen := slices.DeleteFunc(policies(), func(p policy) bool { return s.policy != "" && p.name != s.policy })
	if len(loads) == 0 || len(chosen) == 0 {
		return fmt.Errorf("no workload %q or no policy %q", s.workload, s.policy)
	}
	results, err := replayAll(ctx, s, loads, chosen)
	if err != nil {
		return err
	}
	var b strings.Builder
	for _, w := range loads {
		writeReport(&b, s, w, chosen, results)
	}
	_, err = os.Stdout.WriteString(b.String())
	return err
}
