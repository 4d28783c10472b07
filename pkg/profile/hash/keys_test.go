package hash

import (
	"bytes"
	"encoding/json"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/tranche-dev/tranche/api/v1beta1"
)

// keysOf returns the paths of the keys of a type without keys below them.
func keysOf(t reflect.Type, path string) []string {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice:
		return keysOf(t.Elem(), path)
	case reflect.Struct:
		var keys []string
		for f := range t.Fields() {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			keys = append(keys, keysOf(f.Type, path+"."+name)...)
		}
		return keys
	}
	return []string{path}
}

// keysIn adds the paths of the keys in decoded YAML.
func keysIn(value any, path string, found map[string]bool) {
	switch v := value.(type) {
	case map[string]any:
		for key, value := range v {
			keysIn(value, path+"."+key, found)
		}
	case []any:
		for _, value := range v {
			keysIn(value, path, found)
		}
	default:
		found[path] = true
	}
}

// Every key of a rule has golden hashes: alone, with what it needs, and with all others. So a new key has
// to be thought of in the hash.
func TestGoldenHasEveryKey(t *testing.T) {
	_, rules := golden(t)
	alone, together := map[string]bool{}, map[string]bool{}
	for i, text := range rules {
		var value any
		require.NoError(t, yaml.Unmarshal([]byte(text), &value))
		found := map[string]bool{}
		keysIn(value, "", found)
		switch {
		case i == len(rules)-1:
			together = found
		case len(found) <= 3:
			maps.Copy(alone, found)
		}
	}
	want := keysOf(reflect.TypeFor[v1beta1.Rule](), "")
	slices.Sort(want)
	assert.Equal(t, want, slices.Sorted(maps.Keys(alone)))
	assert.Equal(t, want, slices.Sorted(maps.Keys(together)))
}

// In a copy of the API with another name for a field, and another key, hashes are the same.
func TestRenamedField(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles the API again")
	}
	dir, replaced := t.TempDir(), map[string]string{}
	for _, folder := range []string{"../../../api/v1beta1", "."} {
		files, err := filepath.Glob(folder + "/*.go")
		require.NoError(t, err)
		require.NotEmpty(t, files)
		for _, file := range files {
			file, err = filepath.Abs(file)
			require.NoError(t, err)
			replaced[file] = filepath.Join(dir, strings.ReplaceAll(file, "/", "_"))
			require.NoError(t, os.WriteFile(replaced[file], rename(t, file, "Replicas", "Copies"), 0o600))
		}
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replaced})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(dir+"/overlay.json", overlay, 0o600))
	test := exec.CommandContext(t.Context(), "go", "test", "-vet=off", "-count=1", "-run=^(TestGolden|TestSameHash)$", "-v", "-overlay="+dir+"/overlay.json", ".")
	test.Env = append(os.Environ(), renamed+"=replicas=copies")
	out, err := test.CombinedOutput()
	require.NoError(t, err, string(out))
	assert.Contains(t, string(out), "--- PASS: TestGolden")
}

// rename returns a file of Go with another name for a field, and in the API another key.
func rename(t *testing.T, file, before, after string) []byte {
	t.Helper()
	set := token.NewFileSet()
	parsed, err := parser.ParseFile(set, file, nil, parser.ParseComments)
	require.NoError(t, err)
	ast.Inspect(parsed, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.Ident:
			if n.Name == before {
				n.Name = after
			}
		case *ast.BasicLit:
			if strings.Contains(file, "/api/") {
				n.Value = strings.ReplaceAll(n.Value, `json:"`+strings.ToLower(before)+`,`, `json:"`+strings.ToLower(after)+`,`)
			}
		}
		return true
	})
	var out bytes.Buffer
	require.NoError(t, format.Node(&out, set, parsed))
	return out.Bytes()
}
