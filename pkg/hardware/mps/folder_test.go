package mps

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/pkg/durable"
	"github.com/tranche-dev/tranche/test/filled"
	"github.com/tranche-dev/tranche/test/golden"
)

// Every key of the files about a daemon, as it stays: daemons outlive the plugin.
func TestFormats(t *testing.T) {
	f := folder(t.TempDir())
	var spec Spec
	var daemon process
	var made controlGroups
	filled.Value(&spec)
	filled.Value(&daemon)
	filled.Value(&made)
	for name, value := range map[string]any{"spec.json": spec, "pid": daemon, "ready": daemon, "cgroups": made} {
		require.NoError(t, f.write(name, value))
		data, err := os.ReadFile(f.path(name))
		require.NoError(t, err)
		golden.JSON(t, "testdata/"+strings.TrimSuffix(name, ".json")+".json", data)
	}
	got, err := f.spec()
	require.NoError(t, err)
	assert.Equal(t, spec, got)
	assert.True(t, f.isReady(daemon))
}

// What a newer plugin wrote about a daemon is not taken for a daemon that is gone.
func TestFilesOfANewerVersion(t *testing.T) {
	f := folder(t.TempDir())
	for _, name := range []string{"spec.json", "pid"} {
		require.NoError(t, os.WriteFile(f.path(name), []byte(`{"version":2,"minReader":2}`), 0o600))
	}
	_, err := f.spec()
	require.ErrorAs(t, err, new(*durable.NewerError))
	_, _, err = f.process()
	require.ErrorContains(t, err, "find out whether MPS daemon "+f.id()+" runs: it has version 2 and needs a plugin that reads version 2")
}
