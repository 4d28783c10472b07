package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
)

// listed is a package as the go command describes it.
type listed struct {
	ImportPath, Name, Dir              string
	GoFiles, TestGoFiles, XTestGoFiles []string
	Imports, TestImports, XTestImports []string
	Module                             struct{ Path, Dir string }
	// Export is the file with what the compiled package exports, if it was asked for.
	Export string
	// sources are the files that can be broken, by name.
	sources map[string][]byte
}

func (p *listed) tested() bool { return len(p.TestGoFiles)+len(p.XTestGoFiles) > 0 }

// module is what can be broken and what can notice.
type module struct {
	path, dir string
	packages  map[string]*listed
	// toBreak are packages. lab are folders, ./test/lab.
	toBreak []string
	lab     []string
}

// load asks the go command about the module in dir. It fails if the options do not fit it.
func load(ctx context.Context, dir string, o options) (*module, error) {
	if o.count < 0 {
		return nil, fmt.Errorf("-n: %d is negative; for all places use 0", o.count)
	}
	m := &module{packages: map[string]*listed{}, lab: strings.Split(o.lab, ",")}
	all, err := list(ctx, dir, "./...")
	if err != nil {
		return nil, err
	}
	for _, p := range all {
		m.path, m.dir = p.Module.Path, p.Module.Dir
		m.packages[p.ImportPath] = p
	}
	for _, folder := range m.lab {
		if folder != "" && !slices.ContainsFunc(all, func(p *listed) bool { return p.tested() && m.folder(p.ImportPath) == folder }) {
			return nil, fmt.Errorf("-lab: there are no tests in %q: name folders of the module as ./test/lab", folder)
		}
	}
	chosen, err := list(ctx, dir, o.patterns...)
	if err != nil {
		return nil, err
	}
	for _, p := range chosen {
		if m.packages[p.ImportPath] == nil {
			return nil, fmt.Errorf("cannot break %s: it is not in the module %s", p.ImportPath, m.path)
		}
		m.toBreak = append(m.toBreak, p.ImportPath)
	}
	return m, nil
}

// list asks for packages; words are flags and patterns.
func list(ctx context.Context, dir string, words ...string) (all []*listed, err error) {
	command := exec.CommandContext(ctx, "go", append([]string{"list", "-json"}, words...)...)
	command.Dir, command.Stderr = dir, os.Stderr
	text, err := command.Output()
	if err != nil {
		return nil, fmt.Errorf("list packages %s: %w", strings.Join(words, " "), err)
	}
	for decoder := json.NewDecoder(strings.NewReader(string(text))); ; {
		var p listed
		switch err := decoder.Decode(&p); {
		case errors.Is(err, io.EOF):
			return all, nil
		case err != nil:
			return nil, fmt.Errorf("read the list of packages: %w", err)
		}
		all = append(all, &p)
	}
}

// nearness says which tests noticed something.
type nearness int

const (
	itself nearness = iota
	lab
	above
	nothing
)

type asked struct {
	pkg string
	nearness
}

// tests returns the packages whose tests can notice what is broken in pkg: itself, the lab, and
// those above, those that import it directly first.
func (m *module) tests(pkg string) (all []asked) {
	distance := map[string]int{pkg: 0}
	for changed := []string{pkg}; len(changed) > 0; changed = changed[1:] {
		for path, p := range m.packages {
			if _, known := distance[path]; !known && slices.Contains(p.Imports, changed[0]) {
				distance[path] = distance[changed[0]] + 1
				changed = append(changed, path)
			}
		}
	}
	steps := map[string]int{}
	for path, p := range m.packages {
		if !p.tested() {
			continue
		}
		for _, imported := range slices.Concat([]string{path}, p.Imports, p.TestImports, p.XTestImports) {
			if d, reaches := distance[imported]; reaches && (steps[path] == 0 || d < steps[path]) {
				steps[path] = d + 1
			}
		}
		if steps[path] == 0 {
			continue
		}
		near := above
		switch {
		case path == pkg:
			near = itself
		case slices.Contains(m.lab, m.folder(path)):
			near = lab
		}
		all = append(all, asked{path, near})
	}
	slices.SortFunc(all, func(a, b asked) int {
		return cmp.Or(cmp.Compare(a.nearness, b.nearness), cmp.Compare(steps[a.pkg], steps[b.pkg]), cmp.Compare(a.pkg, b.pkg))
	})
	return all
}

// folder returns the folder of a package as ./pkg/claim.
func (m *module) folder(pkg string) string { return "." + strings.TrimPrefix(pkg, m.path) }

// where returns file and line of a place.
func (m *module) where(p place) string {
	return fmt.Sprintf("%s:%d", strings.TrimPrefix(p.file, m.dir+"/"), p.line)
}
