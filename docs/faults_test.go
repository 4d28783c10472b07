package docs_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/test/simulator/amdgpu"
)

// Every key of the faults of AMD's GPUs is in the page, with the keys of its
// entries beside it.
func TestFaultsAreInTheReference(t *testing.T) {
	_, section, found := strings.Cut(read(t, "../test/simulator/README.md"), "## Faults")
	require.True(t, found)
	faults := reflect.TypeFor[amdgpu.Faults]()
	for i := range faults.NumField() {
		key := tag(faults.Field(i))
		rows := ""
		for line := range strings.Lines(section) {
			if strings.HasPrefix(line, "| `"+key+":") {
				rows += line
			}
		}
		require.NotEmpty(t, rows, key)
		entry := faults.Field(i).Type
		if entry.Kind() != reflect.Slice || entry.Elem().Kind() != reflect.Struct {
			continue
		}
		for j := range entry.Elem().NumField() {
			assert.Regexp(t, `\b`+tag(entry.Elem().Field(j))+`\b`, rows, key)
		}
	}
	for _, file := range amdgpu.FaultFiles() {
		assert.Contains(t, section, "`"+file+"`")
	}
}

func tag(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	return name
}
