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
	// reserve is how many GPUs of each node some policies keep for whole GPUs.
	reserve int
	// out is the folder for plots. Without it, none are drawn.
	out string
}

func main() {
	var s settings
	flag.IntVar(&s.nodes, "nodes", 1500, "how many nodes with 8 GPUs the fleet has")
	flag.IntVar(&s.claims, "claims", 20000, "how many claims arrive in a replay, beside those that are there when it begins")
	flag.IntVar(&s.seeds, "seeds", 3, "how often each replay is repeated with other claims")
	flag.StringVar(&s.workload, "workload", "", "replay only this workload: trace, inference or notebooks")
	flag.StringVar(&s.policy, "policy", "", "replay only these policies, separated by commas")
	flag.IntVar(&s.reserve, "reserve", 4, "how many GPUs of 8 the policies reserved-gpus and reserved-nodes keep unpartitioned while others have room")
	flag.StringVar(&s.out, "out", "", "write SVG plots to this folder")
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
	if s.reserve < 0 || s.reserve > gpusPerNode {
		return fmt.Errorf("-reserve is %d, and a node has %d GPUs", s.reserve, gpusPerNode)
	}
	names := strings.Split(s.policy, ",")
	chosen := slices.DeleteFunc(policies(s.reserve), func(p policy) bool { return s.policy != "" && !slices.Contains(names, p.name) })
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
	if s.out != "" {
		if err := writePlots(s.out, s, loads, chosen, results); err != nil {
			return err
		}
	}
	_, err = os.Stdout.WriteString(b.String())
	return err
}
