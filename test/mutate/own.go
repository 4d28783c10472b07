package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tranche-dev/tranche/pkg/lists"
)

// quick is how long the tests of a package take if it is not worth choosing among them.
const quick = time.Second

// tests are those of a package, with nothing broken.
type tests struct {
	*runner
	in  *variant
	pkg string
	// took is 0 if there are none, or if they fail.
	took time.Duration
	// met are the numbers of the switches that the tests meet.
	met map[int]bool
	// said is what they print.
	said string
	// each has the tests of a package that was split, the quickest first.
	each []single
}

type single struct {
	name string
	took time.Duration
	met  map[int]bool
}

// look runs the tests of a package, all or those with names.
func (r *runner) look(ctx context.Context, v *variant, pkg string, names ...string) (*tests, error) {
	t := &tests{runner: r, in: v, pkg: pkg, met: map[int]bool{}}
	if !r.packages[pkg].tested() {
		return t, nil
	}
	folder, err := r.newFolder()
	if err != nil {
		return nil, err
	}
	met, said := filepath.Join(folder, "met"), filepath.Join(folder, "said")
	if err := os.WriteFile(met, nil, 0o600); err != nil {
		return nil, err
	}
	took, passed, err := r.test(ctx, v, pkg, trial{limit: time.Hour, met: met, names: names, said: said})
	if err != nil {
		return nil, err
	}
	if passed {
		t.took = took
	}
	text, _ := os.ReadFile(said) // there is none if they do not compile
	t.said = string(text)
	text, err = os.ReadFile(met)
	for _, line := range strings.Fields(string(text)) {
		number, _ := strconv.Atoi(line)
		t.met[number] = true
	}
	return t, err
}

// shown is how many bytes of what tests print are shown.
const shown = 4000

// toMend shows what tests print that fail with nothing broken.
func (t *tests) toMend() error {
	t.say("the tests of %s fail with nothing broken:\n%s", t.pkg, t.said[max(0, len(t.said)-shown):])
	return fmt.Errorf("mend the tests of %s first", t.pkg)
}

// split looks at each of the tests, if they are not quick.
func (t *tests) split(ctx context.Context) error {
	if t.took < quick {
		return nil
	}
	text, err := t.command(ctx, t.in, t.packages[t.pkg].Dir, t.in.programs[t.pkg], "-test.list=.").Output()
	if err != nil {
		return fmt.Errorf("list the tests of %s: %w", t.pkg, err)
	}
	names := strings.Fields(string(text))
	all := make([]single, len(names))
	group, within := errgroup.WithContext(ctx)
	group.SetLimit(atOnce)
	for i, name := range names {
		group.Go(func() error {
			one, err := t.look(within, t.in, t.pkg, name)
			if err == nil {
				all[i] = single{name, one.took, one.met}
			}
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	t.each = lists.Filter(all, func(s single) bool { return s.took > 0 })
	slices.SortFunc(t.each, func(a, b single) int { return cmp.Compare(a.took, b.took) })
	return nil
}

// pass reports whether the tests pass with a place broken, in a variant that has it broken or a switch
// for it.
func (t *tests) pass(ctx context.Context, v *variant, p place) (passed bool, err error) {
	if t.took == 0 || p.number != 0 && !t.met[p.number] {
		return true, nil
	}
	if p.number == 0 || len(t.each) == 0 {
		_, passed, err = t.test(ctx, v, t.pkg, trial{limit: 3*t.took + t.slack, broken: p.number})
		return passed, err
	}
	var names []string
	var sum time.Duration
	enough := quick
	for i, s := range t.each {
		if s.met[p.number] {
			names, sum = append(names, s.name), sum+s.took
		}
		if len(names) == 0 || sum < enough && i < len(t.each)-1 {
			continue
		}
		enough *= 8 // slow tests wait, beside each other
		if _, passed, err = t.test(ctx, v, t.pkg, trial{limit: 3*sum + t.slack, broken: p.number, names: names}); !passed || err != nil {
			return passed, err
		}
		names, sum = nil, 0
	}
	return true, nil
}
