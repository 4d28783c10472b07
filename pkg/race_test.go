package pkg_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A package of the product or of the simulator that starts goroutines is tested with the race
// detector, by each `make test` or at night: the Makefile says which, and why.
func TestGoroutinesAreWatched(t *testing.T) {
	makefile, err := os.ReadFile("../Makefile")
	require.NoError(t, err)
	var patterns []string
	for _, line := range regexp.MustCompile(`(?m)^RACE(?:_AT_NIGHT)? +\+?= (.*)`).FindAllStringSubmatch(string(makefile), -1) {
		for pattern := range strings.FieldsSeq(line[1]) {
			patterns = append(patterns, strings.Replace(pattern, ".", "..", 1))
		}
	}
	require.NotEmpty(t, patterns)
	watched := map[string]bool{}
	for _, p := range packages(t, patterns...) {
		watched[p.ImportPath] = true
	}
	started := 0
	for _, p := range packages(t, "../pkg/...", "../cmd/...", "../test/simulator/...") {
		files, err := filepath.Glob(filepath.Join("..", strings.TrimPrefix(p.ImportPath, module), "*.go"))
		require.NoError(t, err)
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			if line := startsGoroutine(t, file); line != "" {
				started++
				assert.True(t, watched[p.ImportPath], "%s starts a goroutine: add %s to RACE or RACE_AT_NIGHT in the Makefile", line, p.ImportPath)
			}
		}
	}
	assert.Greater(t, started, 20)
}

// startsGoroutine returns the first place where a file starts a goroutine.
func startsGoroutine(t *testing.T, file string) (at string) {
	t.Helper()
	fset := token.NewFileSet()
	parsed, err := parser.ParseFile(fset, file, nil, parser.SkipObjectResolution)
	require.NoError(t, err)
	ast.Inspect(parsed, func(n ast.Node) bool {
		starts := false
		switch n := n.(type) {
		case *ast.GoStmt:
			starts = true
		case *ast.CallExpr: // of a sync.WaitGroup or an errgroup.Group
			method, ok := n.Fun.(*ast.SelectorExpr)
			starts = ok && method.Sel.Name == "Go"
		}
		if starts && at == "" {
			at = fset.Position(n.Pos()).String()
		}
		return at == ""
	})
	return at
}
