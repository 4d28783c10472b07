package v1beta1_test

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The generator needs a network when it is not there yet. What it read and what it
// wrote is taken down beside it, so that neither changes without the other.
func TestGeneratedFilesAreOfTheseTypes(t *testing.T) {
	data, err := os.ReadFile("generated.sha256")
	require.NoError(t, err)
	listed := map[string]string{}
	for line := range strings.Lines(string(data)) {
		sum, file, found := strings.Cut(strings.TrimSpace(line), "  ")
		require.True(t, found, line)
		listed[file] = sum
	}
	var files []string
	for _, pattern := range []string{"*.go", crds + "/*.yaml"} {
		found, err := filepath.Glob(pattern)
		require.NoError(t, err)
		files = append(files, found...)
	}
	there := map[string]string{}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		content, err := os.ReadFile(file)
		require.NoError(t, err)
		name, err := filepath.Rel("../..", filepath.Join("../../api/v1beta1", file))
		require.NoError(t, err)
		there[name] = fmt.Sprintf("%x", sha256.Sum256(content))
	}
	assert.Equal(t, listed, there, "run make generate")
}
