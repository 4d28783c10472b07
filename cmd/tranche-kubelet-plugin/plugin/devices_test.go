package plugin

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestListDevices(t *testing.T) {
	root := t.TempDir()
	create := func(path string) string {
		path = filepath.Join(root, path)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, nil, 0o600))
		return path
	}
	create("dev/null")
	create("dev/nvidiactl") // every container of NVIDIA's runtime may have it
	var out bytes.Buffer
	require.ErrorContains(t, listDevices(&out, root), "no device node of a GPU")
	assert.Empty(t, out.String())

	want := ""
	for _, path := range []string{"dev/dri/renderD128", "dev/kfd", "dev/nvidia-caps/nvidia-cap12", "dev/nvidia3"} {
		want += create(path) + "\n"
	}
	require.NoError(t, listDevices(&out, root))
	assert.Equal(t, want, out.String())
}
