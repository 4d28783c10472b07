package main

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"runtime"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"
)

// judgeAll judges places. First the tests of each package are asked, then, about what they do not notice,
// the lab and the packages above, which are built once for all places.
func (r *runner) judgeAll(ctx context.Context, places []place) ([]result, error) {
	byPackage := map[string][]place{}
	for _, p := range places {
		byPackage[p.pkg] = append(byPackage[p.pkg], p)
	}
	var results []result
	var left []place
	var err error
	for _, pkg := range slices.Sorted(maps.Keys(byPackage)) {
		var passed []bool
		if passed, err = r.askOwn(ctx, pkg, byPackage[pkg]); err != nil {
			break
		}
		before := len(left)
		for i, p := range byPackage[pkg] {
			if passed[i] {
				left = append(left, p)
			} else {
				results = append(results, result{p, itself, r.folder(pkg)})
			}
		}
		r.say("%s notices %d of %d places", r.folder(pkg), len(passed)-(len(left)-before), len(passed))
	}
	rest := make([]result, len(left))
	for i, p := range left {
		rest[i] = result{place: p, nearness: nothing}
	}
	if err == nil {
		err = r.askRest(ctx, rest)
	}
	return append(results, rest...), err
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
		own.sayThatTheyFail()
		return nil, errors.New("mend the tests of " + pkg + " first")
	}
	if err := own.split(ctx); err != nil {
		return nil, err
	}
	passed = make([]bool, len(places))
	group, within := errgroup.WithContext(ctx)
	group.SetLimit(atOnce)
	for i, p := range places {
		group.Go(func() (err error) {
			passed[i], err = r.with(p, switched, func(v *variant) (bool, error) { return own.pass(within, v, p) })
			return err
		})
	}
	return passed, group.Wait()
}

// with calls a function with the variant that can have a place broken.
func (r *runner) with(p place, switched *variant, ask func(*variant) (bool, error)) (passed bool, err error) {
	if p.number != 0 {
		return ask(switched)
	}
	v, err := r.variant(map[string][]byte{p.file: p.broken()})
	if err != nil {
		return false, err
	}
	defer v.close()
	return ask(v)
}

// askRest has the lab and the packages above look at places.
func (r *runner) askRest(ctx context.Context, rest []result) error {
	byPackage := map[string][]place{}
	for _, found := range rest {
		byPackage[found.pkg] = append(byPackage[found.pkg], found.place)
	}
	files := map[string][]byte{}
	for pkg, places := range byPackage {
		maps.Copy(files, r.packages[pkg].withSwitches(places))
	}
	switched, err := r.variant(files)
	if err != nil {
		return err
	}
	defer switched.close()
	all := &others{runner: r, switched: switched, known: map[string]*tests{}}
	group, within := errgroup.WithContext(ctx)
	group.SetLimit(runtime.GOMAXPROCS(0))
	for i := range rest {
		group.Go(func() error {
			_, err := r.with(rest[i].place, switched, func(v *variant) (bool, error) { return true, all.ask(within, v, &rest[i]) })
			if err == nil {
				r.say("%s: %s", r.where(rest[i].place), rest[i])
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
		found.sayThatTheyFail()
		if t.nearness == lab {
			err = errors.New("mend the tests of " + t.pkg + " first: they are near to every package")
		}
	}
	return found, cmp.Or(err, ctx.Err())
}
