package formats

import (
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The migration page has a line for every key that a file can have.
func TestPageHasEveryKey(t *testing.T) {
	page, err := os.ReadFile("../../../docs/admin/migrate-from-device-plugin.md")
	require.NoError(t, err)
	_, table, found := strings.Cut(string(page), "| key | effect |\n")
	require.True(t, found)
	table, _, _ = strings.Cut(table, "\n\n")
	var inPage []string
	for row := range strings.Lines(table) {
		for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(strings.Split(row, "|")[1], -1) {
			inPage = append(inPage, m[1])
		}
	}
	want := append(keys("", reflect.TypeFor[pluginConfig]()), "sharing.timeSlicing", "sharing.mps")
	assert.ElementsMatch(t, want, inPage)
}

// keys are the paths of the keys that hold no others; what timeSlicing and mps both
// have is there once.
func keys(path string, t reflect.Type) (found []string) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t == reflect.TypeFor[[]replicatedResource]() {
		return keys(path+"[]", t.Elem())
	}
	if t.Kind() != reflect.Struct {
		return []string{path}
	}
	for i := range t.NumField() {
		f := t.Field(i)
		key := strings.TrimPrefix(path+"."+f.Tag.Get("json"), ".")
		switch key {
		case "sharing.mps":
			continue
		case "sharing.timeSlicing":
			key = "sharing.*"
		}
		found = append(found, keys(key, f.Type)...)
	}
	return found
}
