package main

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"path/filepath"
	"strconv"

	"github.com/tranche-dev/tranche/pkg/lists"
)

// places returns all that can be broken.
func (m *module) places(ctx context.Context) (all []place, err error) {
	compiled, err := list(ctx, m.dir, append([]string{"-export", "-deps", "os", "strconv", "sync"}, m.toBreak...)...)
	if err != nil {
		return nil, err
	}
	exports := map[string]string{}
	for _, p := range compiled {
		exports[p.ImportPath] = p.Export
	}
	set := token.NewFileSet()
	imports := importer.ForCompiler(set, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
	for _, pkg := range m.toBreak {
		found, err := m.packages[pkg].places(set, imports)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", pkg, err)
		}
		all = append(all, found...)
	}
	return all, nil
}

func (p *listed) places(set *token.FileSet, imports types.Importer) (all []place, err error) {
	var trees []*ast.File
	p.sources = map[string][]byte{}
	for _, name := range p.GoFiles {
		name = filepath.Join(p.Dir, name)
		source, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		tree, err := parser.ParseFile(set, name, source, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		trees, p.sources[name] = append(trees, tree), source
	}
	info := &types.Info{Types: map[ast.Expr]types.TypeAndValue{}}
	here, err := (&types.Config{Importer: imports}).Check(p.ImportPath, set, trees, info)
	if err != nil {
		return nil, err
	}
	for _, tree := range trees {
		source := p.sources[set.Position(tree.Pos()).Filename]
		all = append(all, find(p.ImportPath, set, tree, source, func(n *ast.BasicLit) string { return typeOf(info.Types[n].Type, here, tree) })...)
	}
	return all, p.keepSwitches(all, imports)
}

// typeOf returns how a file names the type of a number; empty if it has no name for it.
func typeOf(t types.Type, here *types.Package, tree *ast.File) string {
	if t == nil {
		return ""
	}
	named := true
	name := types.TypeString(types.Default(t), func(p *types.Package) string {
		if p == here {
			return ""
		}
		for _, i := range tree.Imports {
			if path, _ := strconv.Unquote(i.Path.Value); path == p.Path() && i.Name == nil {
				return p.Name()
			}
		}
		named = false
		return ""
	})
	if !named {
		return ""
	}
	return name
}

// keepSwitches takes the switches from those places with which the package would not compile.
func (p *listed) keepSwitches(all []place, imports types.Importer) error {
	for {
		set := token.NewFileSet()
		var trees []*ast.File
		for name, text := range p.withSwitches(all) {
			tree, err := parser.ParseFile(set, name, text, parser.SkipObjectResolution)
			if err != nil {
				return fmt.Errorf("with switches: %w", err)
			}
			trees = append(trees, tree)
		}
		wrong := map[string]bool{}
		config := types.Config{Importer: imports, Error: func(err error) {
			if at := (types.Error{}); errors.As(err, &at) {
				p := at.Fset.Position(at.Pos)
				wrong[fmt.Sprint(p.Filename, p.Line)] = true
			}
		}}
		_, err := config.Check(p.ImportPath, set, trees, nil)
		if err == nil {
			return nil
		}
		taken := false
		for i := range all {
			if all[i].switched != nil && wrong[fmt.Sprint(all[i].file, all[i].line)] {
				all[i].switched, taken = nil, true
			}
		}
		if !taken {
			return fmt.Errorf("with switches: %w", err)
		}
	}
}

// withSwitches returns the files of the package in which the places have switches.
func (p *listed) withSwitches(places []place) map[string][]byte {
	files := map[string][]byte{filepath.Join(p.Dir, "mutate_switches.go"): []byte("package " + p.Name + "\n" + switches)}
	for name, source := range p.sources {
		files[name] = withSwitches(source, lists.Filter(places, func(in place) bool { return in.file == name }))
	}
	return files
}
