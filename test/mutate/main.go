// Command mutate breaks places of packages, one at a time, all or a number that it chooses, and prints
// how many of them the tests notice: those of the package itself, and those of the packages above it.
// It ends with status 1 if fewer are noticed than the aims say. The working tree is never changed.
//
// A package is compiled once, with a switch for each place that an environment variable turns. What a
// switch cannot have, such as a constant, is compiled for itself.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/tranche-dev/tranche/pkg/lists"
)

type options struct {
	// count is the number of places to break, 0 for all; seed chooses them.
	count int
	seed  uint64
	// lab has packages, separated by commas, that count as near to every package.
	lab string
	// above is whether the packages above are asked about what the near ones do not notice.
	above bool
	// nearAim and allAim are the shares, in percent, to be noticed by the near tests and by all.
	nearAim, allAim int
	// slack is what tests may take in any case, beside three times what they take otherwise.
	slack time.Duration
	// memory limits the data of each process, in MiB.
	memory int
	// only chooses among the places, by their kind and the line before and after. Empty: all.
	only string
	// patterns name the packages to break.
	patterns []string
}

func main() {
	var o options
	flag.IntVar(&o.count, "n", 120, "number of places to break; 0 for all")
	flag.Uint64Var(&o.seed, "seed", 0, "chooses the places; 0 for another one each time")
	flag.StringVar(&o.lab, "lab", "./test/lab,./test/e2e", "packages, separated by commas, whose tests count as near to every package")
	flag.BoolVar(&o.above, "above", true, "also run the tests of the packages above")
	flag.IntVar(&o.nearAim, "near", 85, "aim: percent noticed by the package itself and the lab")
	flag.IntVar(&o.allAim, "all", 93, "aim: percent noticed by any package")
	flag.DurationVar(&o.slack, "slack", 10*time.Second, "time that tests have in any case, beside three times what they take otherwise")
	flag.IntVar(&o.memory, "memory", 4096, "limit of the data of each process, in MiB")
	flag.StringVar(&o.only, "only", "", "regular expression: break only places whose kind and diff match, as in the report")
	flag.Parse()
	o.patterns = flag.Args()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	work := func() (bool, error) { return run(ctx, ".", o, os.Stdout, os.Stderr) }
	if o.above || o.lab != "" {
		work = withCache(work)
	}
	reached, err := work()
	stop()
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(2)
	case !reached:
		os.Exit(1)
	}
}

// withCache has work use a cache of the go command that is removed afterwards: all packages above each
// broken one are compiled into it, gigabytes that nobody uses again.
func withCache(work func() (bool, error)) func() (bool, error) {
	return func() (reached bool, err error) {
		caches, err := os.UserCacheDir()
		if err != nil {
			return false, err
		}
		cache, err := os.MkdirTemp(caches, "mutate")
		if err != nil {
			return false, err
		}
		if err := os.Setenv("GOCACHE", cache); err != nil {
			return false, err
		}
		reached, err = work()
		return reached, errors.Join(err, os.RemoveAll(cache))
	}
}

// run breaks places of the module in dir and writes the report to out. It returns whether the aims
// are reached. If it is interrupted, it reports what it has so far: what the tests of the package did not
// notice then counts as noticed by nothing.
func run(ctx context.Context, dir string, o options, out, progress io.Writer) (reached bool, err error) {
	if o.seed == 0 {
		o.seed = uint64(time.Now().Unix())
	}
	m, err := load(ctx, dir, o)
	if err != nil {
		return false, err
	}
	only, err := regexp.Compile(o.only)
	if err != nil {
		return false, fmt.Errorf("-only: %w", err)
	}
	places, err := m.places(ctx)
	if err != nil {
		return false, err
	}
	places = lists.Filter(places, func(p place) bool { return only.MatchString(p.kind + "\n" + p.diff()) })
	r, err := newRunner(ctx, m, o, progress)
	if err != nil {
		return false, err
	}
	defer r.close()
	chosen, refused, err := choose(places, o, func(p place) (bool, error) { return r.compiles(ctx, p) })
	if err != nil {
		return false, err
	}
	if len(chosen) == 0 {
		return false, fmt.Errorf("nothing in %s can be broken: name other packages", strings.Join(o.patterns, " "))
	}
	r.say("seed %d: %d of %d places", o.seed, len(chosen), len(places))
	results, err := r.judgeAll(ctx, chosen)
	return report(out, m, o, results, refused) && err == nil, err
}

// choose returns count of the places that compile when they are broken, by seed, and the number of
// those that it met and that do not.
func choose(places []place, o options, compiles func(place) (bool, error)) (chosen []place, refused int, err error) {
	for _, i := range rand.New(rand.NewPCG(o.seed, 0)).Perm(len(places)) {
		if o.count > 0 && len(chosen) == o.count {
			break
		}
		ok, err := compiles(places[i])
		switch {
		case err != nil:
			return nil, 0, err
		case ok:
			p := places[i]
			if p.switched != nil {
				p.number = len(chosen) + 1
			}
			chosen = append(chosen, p)
		default:
			refused++
		}
	}
	return chosen, refused, nil
}

// report writes the figures and the places that not all tests noticed.
func report(out io.Writer, m *module, o options, results []result, refused int) (reached bool) {
	slices.SortFunc(results, func(a, b result) int { return a.compare(b.place) })
	until := map[nearness]int{}
	for _, r := range results {
		for s := r.nearness; s <= above; s++ {
			until[s]++
		}
	}
	percent := func(s nearness) int { return until[s] * 100 / max(1, len(results)) }
	fmt.Fprintf(out, "Seed %d; %d places that do not compile when they are broken were replaced.\n\n", o.seed, refused)
	fmt.Fprintf(out, "| | noticed | of |\n|---|---|---|\n")
	row := func(title string, s nearness) {
		fmt.Fprintf(out, "| %s | %d (%d %%) | %d |\n", title, until[s], percent(s), len(results))
	}
	row("by the tests of the package itself", itself)
	row("by those of the lab as well", lab)
	if o.above {
		row("by those of the packages above as well", above)
	}
	for _, s := range []nearness{above, nothing} {
		title := map[nearness]string{above: "Noticed only above", nothing: "Noticed by nothing"}[s]
		for _, r := range results {
			if r.nearness != s {
				continue
			}
			if title != "" {
				fmt.Fprintf(out, "\n%s:\n", title)
				title = ""
			}
			fmt.Fprintf(out, "\n%s: %s\n%s", m.where(r.place), r, r.diff())
		}
	}
	return percent(lab) >= o.nearAim && (!o.above || percent(above) >= o.allAim)
}
