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
)

// quick is how long the tests of a package take if it is not worth to choose among them.
const quick = time.Second

// tests are those of the package whose places are broken, with nothing broken.
type tests struct {
	*runner
	pkg  string
	took time.Duration
	// met are the numbers of the switches that the tests meet.
	met map[int]bool
	// each has the tests of a package whose tests are not quick, the quickest first.
	each []single
}

type single struct {
	name string
	took time.Duration
	met  map[int]bool
}

// own runs the tests of a package that has switches.
func (r *runner) own(ctx context.Context, v *variant, pkg string) (*tests, error) {
	t := &tests{runner: r, pkg: pkg}
	if !r.packages[pkg].tested() {
		return t, nil
	}
	var passed bool
	var err error
	if t.took, t.met, passed, err = t.look(ctx, v, nil); !passed || err != nil {
		return nil, cmp.Or(err, fmt.Errorf("the tests of %s fail with nothing broken: run go test %s", pkg, r.folder(pkg)))
	}
	if t.took < quick {
		return t, nil
	}
	list := r.command(ctx, v, r.packages[pkg].Dir, v.programs[pkg], "-test.list=.")
	text, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("list the tests of %s: %w", pkg, err)
	}
	for _, name := range strings.Fields(string(text)) {
		s := single{name: name}
		if s.took, s.met, passed, err = t.look(ctx, v, []string{name}); err != nil {
			return nil, err
		}
		if passed {
			t.each = append(t.each, s)
		}
	}
	slices.SortFunc(t.each, func(a, b single) int { return cmp.Compare(a.took, b.took) })
	return t, nil
}

// look runs tests and returns which switches they meet.
func (t *tests) look(ctx context.Context, v *variant, names []string) (took time.Duration, met map[int]bool, passed bool, err error) {
	file := filepath.Join(v.folder, "met")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		return 0, nil, false, err
	}
	took, passed, err = t.test(ctx, v, t.pkg, trial{limit: time.Hour, met: file, names: names})
	text, failed := os.ReadFile(file)
	met = map[int]bool{}
	for _, line := range strings.Fields(string(text)) {
		number, _ := strconv.Atoi(line)
		met[number] = true
	}
	return took, met, passed, cmp.Or(err, failed)
}

// pass reports whether the tests pass with a switch on; 0: whatever the variant has broken.
func (t *tests) pass(ctx context.Context, v *variant, number int) (passed bool, err error) {
	if t.took == 0 || number != 0 && !t.met[number] {
		return true, nil
	}
	if number == 0 || len(t.each) == 0 {
		_, passed, err = t.test(ctx, v, t.pkg, trial{limit: 3*t.took + t.slack, broken: number})
		return passed, err
	}
	var names []string
	var sum time.Duration
	for i, s := range t.each {
		if s.met[number] {
			names, sum = append(names, s.name), sum+s.took
		}
		if len(names) == 0 || sum < quick && i < len(t.each)-1 {
			continue
		}
		if _, passed, err = t.test(ctx, v, t.pkg, trial{limit: 3*sum + t.slack, broken: number, names: names}); !passed || err != nil {
			return passed, err
		}
		names, sum = nil, 0
	}
	return true, nil
}
