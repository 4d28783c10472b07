package nvidia

import (
	"debug/elf"
	"go/ast"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// oldestDriver is the branch of the oldest supported driver.
const oldestDriver = 535

// listedCall is a row of calls.md.
type listedCall struct {
	since   int
	does    string
	answers string
}

func listedCalls(t *testing.T) map[string]listedCall {
	t.Helper()
	text, err := os.ReadFile("calls.md")
	require.NoError(t, err)
	rows := map[string]listedCall{}
	for _, m := range regexp.MustCompile(`(?m)^\| (\w+) \| R(\d+) \| (.*) \| (.*) \|$`).FindAllStringSubmatch(string(text), -1) {
		since, err := strconv.Atoi(m[2])
		require.NoError(t, err)
		require.NotContains(t, rows, m[1], "a second row")
		rows[m[1]] = listedCall{since: since, answers: m[3], does: m[4]}
	}
	return rows
}

// lookedUp are the functions that the code looks for before it calls them.
func lookedUp(t *testing.T) map[string]bool {
	t.Helper()
	found := map[string]bool{}
	for _, file := range sources(t) {
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || len(call.Args) != 1 {
				return true
			}
			method, ok := call.Fun.(*ast.SelectorExpr)
			name, isText := call.Args[0].(*ast.BasicLit)
			if ok && isText && method.Sel.Name == "Has" {
				found[strings.TrimPrefix(strings.Trim(name.Value, `"`), "nvml")] = true
			}
			return true
		})
	}
	return found
}

// calls.md lists the calls that TestEveryNVMLCallIsListed finds in the code, and says which are
// looked up.
func TestTableOfCalls(t *testing.T) {
	rows, found := listedCalls(t), lookedUp(t)
	for name := range nvmlCalls {
		assert.Contains(t, rows, name, "calls.md does not list it")
	}
	for name, row := range rows {
		assert.Contains(t, nvmlCalls, name, "calls.md lists a call that nothing makes")
		assert.Equal(t, found[name], strings.HasPrefix(row.does, "looked up"), "%s: calls.md and the code differ in whether it is looked up", name)
		assert.True(t, row.since <= oldestDriver || found[name], "%s is newer than R%d and must be looked up", name, oldestDriver)
		assert.Equal(t, row.answers == "", row.does == "", "%s: an answer and what is done about it belong together", name)
	}
	for name := range found {
		assert.Contains(t, rows, name, "looked up and not listed")
	}
}

// A real library of R580 has the calls that its header has, and no others.
func TestLibraryOfR580(t *testing.T) {
	text, err := os.ReadFile("testdata/libnvidia-ml-580.159.04.symbols")
	require.NoError(t, err)
	has := map[string]bool{}
	for name := range strings.Lines(string(text)) {
		has[strings.TrimSpace(name)] = true
	}
	for name, row := range listedCalls(t) {
		assert.Equal(t, row.since <= 580, has["nvml"+name], "%s since R%d", name, row.since)
	}
}

// The real library of the oldest driver has every call that is not looked up (make test-clients).
func TestLibraryHasEveryCall(t *testing.T) {
	path := os.Getenv("TRANCHE_NVML_LIBRARY")
	if path == "" {
		t.Skip("make test-clients fetches the library")
	}
	library, err := elf.Open(path)
	require.NoError(t, err)
	defer library.Close()
	symbols, err := library.DynamicSymbols()
	require.NoError(t, err)
	has := map[string]bool{}
	for _, s := range symbols {
		if s.Section != elf.SHN_UNDEF {
			has[s.Name] = true
		}
	}
	found := lookedUp(t)
	for name := range listedCalls(t) {
		switch {
		case has["nvml"+name]:
			t.Logf("%s: there", name)
		case found[name]:
			t.Logf("%s: missing, and looked up", name)
		default:
			t.Errorf("%s: missing, and called without looking it up: the process would end", name)
		}
	}
}
