package cmd_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
)

// listed is a package as go list describes it.
type listed struct {
	ImportPath, Dir  string
	GoFiles, Imports []string
	ImportMap        map[string]string
	Standard         bool
	Module           *struct{ Path, GoVersion string }
}

func (p *listed) ours() bool {
	return p.Module != nil && p.Module.Path == "github.com/tranche-dev/tranche"
}

// dependencies are the packages of kubectl-tranche on a platform, each after those that it imports.
func dependencies(t *testing.T, system, architecture string) []*listed {
	t.Helper()
	list := exec.CommandContext(t.Context(), "go", "list", "-deps", "-json=ImportPath,Dir,GoFiles,Imports,ImportMap,Standard,Module", "./kubectl-tranche")
	list.Env = append(list.Environ(), "GOOS="+system, "GOARCH="+architecture, "CGO_ENABLED=0")
	list.Stderr = os.Stderr
	out, err := list.Output()
	require.NoError(t, err, "a package has no files for %s/%s", system, architecture)
	var all []*listed
	for decoder := json.NewDecoder(strings.NewReader(string(out))); ; {
		p := &listed{}
		if err := decoder.Decode(p); errors.Is(err, io.EOF) {
			return all
		} else {
			require.NoError(t, err)
		}
		all = append(all, p)
	}
}

// kubectl tranche runs on the machines of its users: it contains no package of this module that
// needs Linux. The packages of this module are the same files for all architectures, so that one of
// each system is enough for the test below.
func TestPluginOfKubectlNeedsNoLinux(t *testing.T) {
	for _, system := range []string{"darwin", "windows", "linux"} {
		files := map[string][]string{}
		for _, architecture := range []string{"amd64", "arm64"} {
			for _, p := range dependencies(t, system, architecture) {
				if !p.ours() {
					continue
				}
				for _, linux := range []string{"golang.org/x/sys/unix", "github.com/google/renameio/v2", "github.com/moby/sys/mountinfo"} {
					assert.NotContains(t, p.Imports, linux, p.ImportPath)
				}
				if files[p.ImportPath] == nil {
					files[p.ImportPath] = p.GoFiles
				}
				assert.Equal(t, files[p.ImportPath], p.GoFiles, "%s on %s/%s", p.ImportPath, system, architecture)
			}
		}
		assert.Greater(t, len(files), 20)
	}
}

// Types are checked as on macOS and Windows, which takes seconds: a build takes minutes. Linux is
// where the tests run. Bodies of functions of other modules are left out.
func TestPluginOfKubectlCompilesEverywhere(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes a minute")
	}
	for _, system := range []string{"darwin", "windows"} {
		t.Run(system, func(t *testing.T) {
			c := &checker{fset: token.NewFileSet(), done: map[string]*types.Package{"unsafe": types.Unsafe}}
			for _, err := range c.check(t, dependencies(t, system, "arm64")) {
				assert.NoError(t, err)
			}
		})
	}
}

// checker checks the types of packages.
type checker struct {
	fset *token.FileSet
	done map[string]*types.Package
}

func (c *checker) check(t *testing.T, all []*listed) (found []error) {
	t.Helper()
	for chunk := range slices.Chunk(all, 100) {
		files := make([][]*ast.File, len(chunk))
		var group errgroup.Group
		group.SetLimit(runtime.GOMAXPROCS(0))
		for i, p := range chunk {
			group.Go(func() (err error) {
				files[i], err = c.parse(p)
				return err
			})
		}
		require.NoError(t, group.Wait())
		for i, p := range chunk {
			if p.ImportPath == "unsafe" {
				continue
			}
			config := types.Config{
				Importer: &importer{c, p}, IgnoreFuncBodies: !p.ours(), Sizes: types.SizesFor("gc", "arm64"), FakeImportC: true,
				Error: func(err error) {
					if p.ours() {
						found = append(found, err)
					}
				},
			}
			// Errors are told to Error.
			c.done[p.ImportPath], _ = config.Check(p.ImportPath, c.fset, files[i], nil)
		}
	}
	return found
}

func (c *checker) parse(p *listed) ([]*ast.File, error) {
	files := make([]*ast.File, 0, len(p.GoFiles))
	for _, name := range p.GoFiles {
		file, err := parser.ParseFile(c.fset, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		files = append(files, file)
	}
	return files, nil
}

// importer finds what a package imports.
type importer struct {
	*checker
	by *listed
}

// Import implements types.Importer.
func (i *importer) Import(path string) (*types.Package, error) {
	if mapped := i.by.ImportMap[path]; mapped != "" {
		path = mapped
	}
	if p := i.done[path]; p != nil {
		return p, nil
	}
	return nil, fmt.Errorf("%s is not among the dependencies", path)
}
