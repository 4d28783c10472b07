package notices

import (
	"bytes"
	"cmp"
	"context"
	"debug/buildinfo"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
)

// Build says how a program is built, as far as that decides what is linked.
type Build struct {
	// Package is the import path of the program's package.
	Package string
	// System and Architecture are Go's names.
	System, Architecture string
	CGO                  bool
	// Tags are build tags with commas.
	Tags string
}

// Module is a module that a program is linked from, or Go's standard library.
type Module struct {
	Path, Version string
	// Licences are SPDX identifiers, sorted.
	Licences []string
	Files    []File
}

// File is a file with a licence or a notice that must be passed on.
type File struct {
	// Name is its path in the module.
	Name, Text string
}

// StandardLibrary is the path of its Module, as package URLs have it.
const StandardLibrary = "stdlib"

// OfPrograms returns the modules that programs are linked from, sorted by path. The sources are the folder of
// the main module that they were built in. An error names a module whose licence is missing, unknown, or
// refused, and a program that was built from other versions than the sources have now.
func OfPrograms(ctx context.Context, sources string, programs ...string) ([]Module, error) {
	all := map[string]Module{}
	for _, program := range programs {
		info, err := buildinfo.ReadFile(program)
		if err != nil {
			return nil, fmt.Errorf("read the Go modules of %s: %w", program, err)
		}
		modules, err := OfBuild(ctx, sources, buildOf(info))
		if err != nil {
			return nil, fmt.Errorf("licences in %s: %w", program, err)
		}
		found := map[string]string{}
		for _, m := range modules {
			m, found[m.Path] = join(all[m.Path], m), m.Version
			all[m.Path] = m
		}
		for _, linked := range append(info.Deps, &debug.Module{Path: StandardLibrary, Version: info.GoVersion}) {
			if linked.Replace != nil {
				linked = linked.Replace
			}
			if found[linked.Path] != linked.Version {
				return nil, fmt.Errorf("%s contains %s %s, and %s has %q: build it again", program, linked.Path, linked.Version, sources, found[linked.Path])
			}
		}
	}
	return sorted(all), nil
}

// join is a module with the files that two programs contain of it.
func join(a, b Module) Module {
	for _, file := range a.Files {
		if !slices.Contains(b.Files, file) {
			b.Files = append(b.Files, file)
		}
	}
	slices.SortFunc(b.Files, func(x, y File) int { return cmp.Compare(x.Name, y.Name) })
	b.Licences = slices.Compact(slices.Sorted(slices.Values(slices.Concat(a.Licences, b.Licences))))
	return b
}

func buildOf(info *buildinfo.BuildInfo) Build {
	b := Build{Package: info.Path}
	for _, s := range info.Settings {
		switch s.Key {
		case "GOOS":
			b.System = s.Value
		case "GOARCH":
			b.Architecture = s.Value
		case "CGO_ENABLED":
			b.CGO = s.Value == "1"
		case "-tags":
			b.Tags = s.Value
		}
	}
	return b
}

// OfBuild returns the modules that a program is linked from if it is built from the sources in a folder.
func OfBuild(ctx context.Context, sources string, of Build) ([]Module, error) {
	packages, err := list(ctx, sources, of)
	if err != nil {
		return nil, err
	}
	all := map[string]Module{}
	for _, p := range packages {
		m, known := all[p.module]
		if !known {
			m = Module{Path: p.module, Version: p.version}
		}
		if err := m.addFiles(p.root, p.folder); err != nil {
			return nil, err
		}
		all[p.module] = m
	}
	var errs []error
	for path, m := range all {
		if err := m.classify(); err != nil {
			errs = append(errs, fmt.Errorf("module %s %s: %w", m.Path, m.Version, err))
		}
		all[path] = m
	}
	return sorted(all), errors.Join(errs...)
}

func sorted(modules map[string]Module) (all []Module) {
	for _, m := range modules {
		all = append(all, m)
	}
	slices.SortFunc(all, func(a, b Module) int { return cmp.Compare(a.Path, b.Path) })
	return all
}

// linked is a package that is linked: its folder, and its module's.
type linked struct{ module, version, folder, root string }

// list returns the packages of other modules, and one for the standard library.
func list(ctx context.Context, sources string, of Build) ([]linked, error) {
	const format = `{{with .Module}}{{if not .Main}}{{.Path}} {{.Version}} {{$.Dir}} {{.Dir}}{{end}}{{end}}`
	cmd := exec.CommandContext(ctx, "go", "list", "-deps", "-tags", of.Tags, "-f", format, of.Package)
	cmd.Dir = sources
	cmd.Env = append(os.Environ(), "GOOS="+of.System, "GOARCH="+of.Architecture, "CGO_ENABLED=0")
	if of.CGO {
		cmd.Env = append(cmd.Env, "CGO_ENABLED=1")
	}
	out, err := output(cmd)
	if err != nil {
		return nil, err
	}
	goroot := exec.CommandContext(ctx, "go", "env", "GOROOT", "GOVERSION")
	goroot.Dir = sources
	toolchain, err := output(goroot)
	if err != nil {
		return nil, err
	}
	root, version, _ := strings.Cut(strings.TrimSpace(toolchain), "\n")
	all := []linked{{StandardLibrary, version, root, root}}
	for line := range strings.Lines(out) {
		if f := strings.Fields(line); len(f) == 4 {
			all = append(all, linked{f[0], f[1], f[2], f[3]})
		}
	}
	return all, nil
}

func output(cmd *exec.Cmd) (string, error) {
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w: %s", cmd, err, bytes.TrimSpace(stderr.Bytes()))
	}
	return string(out), nil
}

// Names of files with licences, and of those that licences ask to pass on.
var (
	licenceFile = regexp.MustCompile(`(?i)^(un)?licen[cs]es?\b|^copying\b`)
	noticeFile  = regexp.MustCompile(`(?i)^(notice|patents|authors)\b`)
	sourceFile  = regexp.MustCompile(`\.(go|s|c|h|sh|ya?ml|tmpl)$`)
)

// addFiles adds the files of a package: those in its folder and above it, up to the module's.
func (m *Module) addFiles(root, folder string) error {
	for {
		entries, err := os.ReadDir(folder) // sorted by name
		if err != nil {
			return err
		}
		for _, e := range entries {
			if e.IsDir() || sourceFile.MatchString(e.Name()) || !licenceFile.MatchString(e.Name()) && !noticeFile.MatchString(e.Name()) {
				continue
			}
			name, err := filepath.Rel(root, filepath.Join(folder, e.Name()))
			if err != nil {
				return err
			}
			if slices.ContainsFunc(m.Files, func(f File) bool { return f.Name == name }) {
				continue
			}
			text, err := os.ReadFile(filepath.Join(folder, e.Name()))
			if err != nil {
				return err
			}
			m.Files = append(m.Files, File{name, string(text)})
		}
		if folder == root || folder == filepath.Dir(folder) {
			return nil
		}
		folder = filepath.Dir(folder)
	}
}

// classify finds the licences in the module's files.
func (m *Module) classify() error {
	var all []string
	for _, file := range m.Files {
		if !licenceFile.MatchString(filepath.Base(file.Name)) {
			continue
		}
		found, err := classify(file.Text)
		if err != nil {
			return fmt.Errorf("file %s: %w", file.Name, err)
		}
		all = append(all, found...)
	}
	if all == nil {
		return errors.New("it has no file with a licence: nobody may pass it on")
	}
	m.Licences = slices.Compact(slices.Sorted(slices.Values(all)))
	slices.SortFunc(m.Files, func(a, b File) int { return cmp.Compare(a.Name, b.Name) })
	return nil
}
