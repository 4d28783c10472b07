// Package order searches for an order of a GPU's devices with which fewer claims are refused. An
// order costs no writes and no CPU: the scheduler's allocator takes the first device that fits.
package order

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"

	"golang.org/x/sync/errgroup"

	"github.com/tranche-dev/tranche/test/packing/fleet"
	"github.com/tranche-dev/tranche/test/packing/policy"
	"github.com/tranche-dev/tranche/test/packing/replay"
	"github.com/tranche-dev/tranche/test/packing/workload"
)

const (
	// claims arrive in each replay.
	claims = 3000
	// searchSeeds are those by which orders are chosen, checkSeeds those by which the chosen one
	// is compared.
	searchSeeds, checkSeeds = 4, 12
)

var (
	// fleets are the numbers of nodes. The smaller a fleet, the more an order matters.
	fleets = []int{1, 4, 16}
	loads  = []float64{0.7, 0.85, 1}
)

// mixes are workloads of which all claims ask for one device of these kinds. Pods request little
// else, so that GPUs alone decide.
func mixes() (all []workload.Workload, err error) {
	known, err := workload.All()
	if err != nil {
		return nil, err
	}
	for _, w := range known {
		all = append(all, single(w.Name, w.Shapes))
	}
	of := func(kinds ...int) {
		var shapes []workload.Shape
		name := "small and"
		for i, k := range kinds {
			// The same demand of each.
			shapes = append(shapes, workload.Shape{Kind: k, Weight: 1 / workload.Kinds[k].GPUs(), Life: 3600})
			if i > 0 {
				name += " " + workload.Kinds[k].String()
			}
		}
		all = append(all, workload.Workload{Name: name, Shapes: shapes})
	}
	of(0, 4)
	of(0, 3)
	of(0, 2, 3)
	of(0, workload.WholeGPU)
	return all, nil
}

// single keeps the claims for one device.
func single(name string, shapes []workload.Shape) workload.Workload {
	w := workload.Workload{Name: name}
	for _, s := range shapes {
		if workload.Kinds[s.Kind].Count == 1 {
			s.CPU, s.Memory = 0, 0
			w.Shapes = append(w.Shapes, s)
		}
	}
	return w
}

// Search tries so many changes of the plugin's order, keeps those that refuse less demand, and
// writes what it found.
func Search(ctx context.Context, out io.Writer, l *fleet.Layout, tries int, say func(format string, args ...any)) error {
	all, err := mixes()
	if err != nil {
		return err
	}
	random := rand.New(rand.NewPCG(1, 1)) //nolint:gosec // the same each time
	plugin := l.Order()
	best := plugin
	least, err := refused(ctx, l, best, all, 0, searchSeeds)
	if err != nil {
		return err
	}
	for try := range tries {
		say("%d of %d orders tried", try, tries)
		next := change(best, random)
		found, err := refused(ctx, l, next, all, 0, searchSeeds)
		if err != nil {
			return err
		}
		if mean(found) < mean(least) {
			best, least = next, found
		}
	}
	return compare(ctx, out, l, all, []named{{"the plugin's", plugin}, {"ascending", ascending(plugin)}, {"the best of the search", best}})
}

// change exchanges two starts, sometimes several times.
func change(o fleet.Order, random *rand.Rand) fleet.Order {
	for {
		k := random.IntN(len(o))
		if len(o[k]) < 2 {
			continue
		}
		i := random.IntN(len(o[k]))
		j := (i + 1 + random.IntN(len(o[k])-1)) % len(o[k])
		o = o.Swapped(k, i, j)
		if random.IntN(2) == 0 {
			return o
		}
	}
}

func ascending(o fleet.Order) fleet.Order {
	for k := range o {
		for i := range o[k] {
			for j := range o[k][:i] {
				if o[k][j] > o[k][i] {
					o = o.Swapped(k, i, j)
				}
			}
		}
	}
	return o
}

type named struct {
	name  string
	order fleet.Order
}

// compare writes a table of orders, with seeds that the search did not use.
func compare(ctx context.Context, out io.Writer, l *fleet.Layout, all []workload.Workload, orders []named) error {
	fmt.Fprint(out, "\n| order | demand that is refused |")
	for _, w := range all {
		fmt.Fprintf(out, " %s |", w.Name)
	}
	fmt.Fprint(out, "\n|---|---|")
	for range all {
		fmt.Fprint(out, "---|")
	}
	fmt.Fprintln(out)
	for _, o := range orders {
		found, err := refused(ctx, l, o.order, all, searchSeeds, checkSeeds)
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "| %s: %s | %.2f %% |", o.name, o.order, 100*mean(found))
		for _, share := range found {
			fmt.Fprintf(out, " %.2f %% |", 100*share)
		}
		fmt.Fprintln(out)
	}
	return nil
}

// refused is the share of the demand that finds no room when it arrives, for each workload.
func refused(ctx context.Context, l *fleet.Layout, o fleet.Order, all []workload.Workload, firstSeed, seeds int) ([]float64, error) {
	p := policy.Policy{New: policy.Stock}
	layout := l.WithOrder(o)
	cases := len(fleets) * len(loads) * seeds
	found := make([]float64, len(all)*cases)
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(runtime.GOMAXPROCS(0))
	for i := range found {
		group.Go(func() error {
			of := i % cases
			found[i] = replay.Refused(replay.Settings{
				Workload: all[i/cases], Policy: p, Layout: layout, Claims: claims,
				Nodes: fleets[of%len(fleets)], Load: loads[of/len(fleets)%len(loads)], Seed: uint64(firstSeed + of/len(fleets)/len(loads)),
			})
			return ctx.Err()
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	means := make([]float64, len(all))
	for i, share := range found {
		means[i/cases] += share / float64(cases)
	}
	return means, nil
}

func mean(all []float64) (sum float64) {
	for _, v := range all {
		sum += v / float64(len(all))
	}
	return sum
}
