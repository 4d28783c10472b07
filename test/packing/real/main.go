package main

import (
	"cmp"
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
	"time"

	"github.com/tranche-dev/tranche/test/controlplane"
)

// settings are what is measured.
type settings struct {
	launcher            controlplane.Launcher
	nodes, pods, rounds int
	way                 string
}

func main() {
	var s settings
	flag.StringVar(&s.launcher.Tool, "cluster", "bin/cluster", "the program that starts clusters, as make cluster-tool leaves it")
	flag.StringVar(&s.launcher.Dir, "dir", ".cluster-packing", "folder for the clusters")
	flag.IntVar(&s.nodes, "nodes", 100, "how many nodes with 8 × H100 there are")
	flag.IntVar(&s.pods, "pods", 200, "how many pods with a 1g.10gb are scheduled")
	flag.IntVar(&s.rounds, "rounds", 1, "how often each way is measured")
	flag.StringVar(&s.way, "way", "", "measure only this way")
	flag.Parse()

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
	chosen := slices.DeleteFunc(slices.Clone(ways), func(w way) bool { return s.way != "" && w.name != s.way })
	if len(chosen) == 0 {
		return fmt.Errorf("there is no way %q", s.way)
	}
	results := map[string][]filled{}
	for round := range s.rounds {
		for _, w := range chosen {
			fmt.Fprintf(os.Stderr, "Round %d of %d: %s\n", round+1, s.rounds, w.name)
			r, err := s.run(ctx, w)
			if err != nil {
				return fmt.Errorf("%s: %w", w.name, err)
			}
			results[w.name] = append(results[w.name], r)
		}
	}
	_, err = os.Stdout.WriteString(report(chosen, results))
	return err
}

// report is a table of all ways, with the least and the greatest of all rounds.
func report(chosen []way, results map[string][]filled) string {
	var b strings.Builder
	b.WriteString("| way | GPUs in use | nodes in use | scheduler CPU per pod | slice writes per pod |\n|---|---|---|---|---|\n")
	for _, w := range chosen {
		all := results[w.name]
		fmt.Fprintf(&b, "| %s | %s | %s | %s ms | %s |\n", w.name,
			span(all, "%d", func(f filled) int { return f.gpus }), span(all, "%d", func(f filled) int { return f.nodes }),
			span(all, "%d", func(f filled) int64 { return f.cpu.Round(time.Millisecond).Milliseconds() }),
			span(all, "%.2f", func(f filled) float64 { return f.sliceWrites }))
	}
	return b.String()
}

// span is the least and the greatest value of some results.
func span[T cmp.Ordered](all []filled, format string, value func(filled) T) string {
	values := make([]T, len(all))
	for i, f := range all {
		values[i] = value(f)
	}
	least, most := fmt.Sprintf(format, slices.Min(values)), fmt.Sprintf(format, slices.Max(values))
	if least == most {
		return least
	}
	return least + "–" + most
}
