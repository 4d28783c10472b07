package main

import (
	"cmp"
	"context"
	"maps"
	"runtime"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/tranche-dev/tranche/pkg/lists"
)

// judgeAll judges places. First the tests of each package are asked, then, about what they do not notice,
// the lab and the packages above, which are built once for all places.
func (r *runner) judgeAll(ctx context.Context, places []place) (results []result, err error) {
	var left []place
	packages := byPackage(places)
	for _, pkg := range slices.Sorted(maps.Keys(packages)) {
		var passed []bool
		if passed, err = r.askOwn(ctx, pkg, packages[pkg]); err != nil {
			break
		}
		before := len(results)
		for i, p := range packages[pkg] {
			if passed[i] {
				left = append(left, p)
			} else {
				results = append(results, result{p, itself, r.folder(pkg)})
			}
		}
		r.say("%s notices %d of %d places", r.folder(pkg), len(results)-before, len(passed))
	}
	rest := lists.Map(left, func(p place) result { return result{place: p, nearness: nothing} })
	if err == nil {
		err = r.askRest(ctx, left, rest)
	}
	return append(results, rest...), err
}

func byPackage(places []place) map[string][]place {
	all := map[string][]place{}
	for _, p := range places {
		all[p.pkg] = append(all[p.pkg], p)
	}
	return all
}

// atOnce is how many tests run at the same time with something broken: many wait.
var atOnce = 2 * runtime.GOMAXPROCS(0)

// askOwn reports of places of a package whether its own tests pass although they are broken.
func (r *runner) askOwn(ctx context.Context, pkg string, places []place) (passed []bool, err error) {
	switched, err := r.variant(r.packages[pkg].withSwitches(places))
	if err != nil {
		return nil, err
	}
	defer switched.close()
	own, err := r.look(ctx, switched, pkg)
	if err != nil {
		return nil, err
	}
	if own.took == 0 && r.packages[pkg].tested() {
		return nil, own.toMend()
	}
	if err := own.split(ctx); err != nil {
		return nil, err
	}
	passed = make([]bool, len(places))
	group, within := errgroup.WithContext(ctx)
	group.SetLimit(atOnce)
	for i, p := range places {
		group.Go(func() error {
			return r.with(p, switched, func(v *variant) (err error) {
				passed[i], err = own.pass(within, v, p)
				return err
			})
		})
	}
	return passed, group.Wait()
}

// with calls a function with the variant that can have a place broken.
func (r *runner) with(p place, switched *variant, ask func(*variant) error) error {
	if p.number != 0 {
		return ask(switched)
	}
	v, err := r.variant(map[string][]byte{p.file: p.broken()})
	if err != nil {
		return err
	}
	defer v.close()
	return ask(v)
}

// askRest has the lab and the packages above look at places, and writes into results what they notice.
func (r *runner) askRest(ctx context.Context, places []place, results []result) error {
	files := map[string][]byte{}
	for pkg, of := range byPackage(places) {
		maps.Copy(files, r.packages[pkg].withSwitches(of))
	}
	switched, err := r.variant(files)
	if err != nil {
		return err
	}
	defer switched.close()
	all := &others{runner: r, switched: switched, known: map[string]*tests{}}
	group, within := errgroup.WithContext(ctx)
	group.SetLimit(runtime.GOMAXPROCS(0))
	for i, p := range places {
		group.Go(func() error {
			err := r.with(p, switched, func(v *variant) error { return all.ask(within, v, &results[i]) })
			if err == nil {
				r.say("%s: %s", r.where(p), results[i])
			}
			return err
		})
	}
	return group.Wait()
}

// others are the tests of the lab and above.
type others struct {
	*runner
	switched *variant
	// mu is held while tests run with nothing broken, and guards known.
	mu    sync.Mutex
	known map[string]*tests
}

// ask runs tests with a place broken until one fails.
func (o *others) ask(ctx context.Context, v *variant, found *result) error {
	for _, t := range o.tests(found.pkg) {
		if t.nearness == itself || t.nearness == above && !o.above {
			continue
		}
		usual, err := o.usual(ctx, t)
		if err != nil {
			return err
		}
		passed, err := usual.pass(ctx, v, found.place)
		if err != nil {
			return err
		}
		if !passed {
			found.nearness, found.by = t.nearness, o.folder(t.pkg)
			return nil
		}
	}
	return nil
}

// usual runs tests with nothing broken, once. It fails if those of the lab do.
func (o *others) usual(ctx context.Context, t asked) (found *tests, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.known[t.pkg] != nil {
		return o.known[t.pkg], nil
	}
	for range 2 { // A busy machine can be too slow for a test.
		if found, err = o.look(ctx, o.switched, t.pkg); err != nil {
			return nil, err
		}
		if found.took > 0 {
			break
		}
	}
	o.known[t.pkg] = found
	if found.took == 0 {
		if failed := found.toMend(); t.nearness == lab {
			err = failed
		}
	}
	return found, cmp.Or(err, ctx.Err())
}
