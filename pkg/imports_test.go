// Package pkg_test checks what packages import.
package pkg_test

import (
	"encoding/json"
	"errors"
	"go/parser"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const module = "github.com/tranche-dev/tranche/"

// The comment of every package ends with the packages of this module that it imports.
// Who wants to import another one changes that line, and its reader sees it.
func TestImports(t *testing.T) {
	for _, p := range packages(t, "../api/...", "./...") {
		if p.ImportPath == module+"pkg" {
			continue // this test
		}
		t.Run(strings.TrimPrefix(p.ImportPath, module), func(t *testing.T) {
			var imports []string
			for _, path := range p.Imports {
				if own, ok := strings.CutPrefix(path, module); ok {
					imports = append(imports, own)
				}
			}
			slices.Sort(imports)
			assert.Equal(t, imports, stated(t, p.Dir), "the last line of the comment in %s/doc.go", p.Dir)
		})
	}
}

type listed struct {
	ImportPath, Dir string
	Imports         []string
}

func packages(t *testing.T, patterns ...string) (all []listed) {
	list := exec.CommandContext(t.Context(), "go", append([]string{"list", "-json=ImportPath,Dir,Imports"}, patterns...)...)
	list.Stderr = os.Stderr
	out, err := list.Output()
	require.NoError(t, err)
	for decoder := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p listed
		err := decoder.Decode(&p)
		if errors.Is(err, io.EOF) {
			return all
		}
		require.NoError(t, err)
		all = append(all, p)
	}
}

// stated lists what the comment of a package says that it imports.
func stated(t *testing.T, dir string) []string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(dir, "doc.go"), nil, parser.ParseComments)
	require.NoError(t, err, "every package has a comment, in doc.go")
	_, list, ok := strings.Cut(strings.Join(strings.Fields(file.Doc.Text()), " "), "Imports: ")
	require.True(t, ok, "the comment does not say what the package imports: Imports: none.")
	list = strings.TrimSuffix(list, ".")
	if list == "none" {
		return nil
	}
	return strings.Split(list, ", ")
}
