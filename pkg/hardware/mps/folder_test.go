package mps

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gofrs/flock"
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
	s := New(Config{Dir: t.TempDir()})
	f := s.folder("gpu")
	require.NoError(t, f.make())
	for _, name := range []string{"spec.json", "pid"} {
		require.NoError(t, os.WriteFile(f.path(name), []byte(`{"version":2,"minReader":2}`), 0o600))
	}
	_, err := f.spec()
	require.ErrorAs(t, err, new(*durable.NewerError))
	_, _, err = f.process()
	require.ErrorContains(t, err, "find out whether MPS daemon gpu runs: it has version 2 and needs a plugin that reads version 2")
	require.ErrorAs(t, s.Start(within(t), Spec{ID: "gpu"}), new(*durable.NewerError))
	require.ErrorAs(t, s.Status("gpu").Err, new(*durable.NewerError))
	require.ErrorAs(t, s.Stop(within(t), "gpu"), new(*durable.NewerError))
	assert.DirExists(t, string(f), "the daemon may run")
}

// Whatever is done with a folder that cannot be used says so.
func TestFolderThatCannotBeUsed(t *testing.T) {
	s := New(Config{Dir: "/dev/null"})
	_, err := s.List()
	for want, err := range map[string]error{
		"list MPS daemons: ":                    err,
		"make the folder of MPS daemon gpu: ":   s.Start(within(t), Spec{ID: "gpu"}),
		"MPS daemon gpu: open /dev/null":        s.Wait(within(t), "gpu"),
		"stop MPS daemon gpu: lock /dev/null":   s.Stop(within(t), "gpu"),
		"try MPS: mkdir /dev/null":              s.Probe(within(t)),
		"can have 107: choose a shorter folder": New(Config{Dir: filepath.Join(t.TempDir(), strings.Repeat("x", 100))}).Probe(within(t)),
	} {
		require.ErrorContains(t, err, want)
	}
	s = New(Config{Dir: t.TempDir()})
	require.NoError(t, os.MkdirAll(s.folder("gpu").path(launchLog), 0o755))
	require.ErrorContains(t, s.Start(within(t), Spec{ID: "gpu"}), "launch MPS daemon gpu: ")
}

// Whoever waits for a lock is told so in the end. A folder that was removed meanwhile has none.
func TestLock(t *testing.T) {
	f := folder(filepath.Join(t.TempDir(), "gpu"))
	require.NoError(t, f.make())
	unlock, err := f.lock(within(t))
	require.NoError(t, err)
	short, cancel := context.WithTimeout(t.Context(), 2*lockPoll)
	defer cancel()
	_, err = f.lock(short)
	require.ErrorContains(t, err, "is being launched or stopped by another process: context deadline exceeded")
	removed := flock.New(f.path("lock"))
	_, err = removed.TryLock()
	require.NoError(t, err)
	assert.True(t, f.isLock(removed))
	require.NoError(t, f.remove())
	unlock()
	assert.False(t, f.isLock(removed))
	_, err = f.lock(within(t))
	require.ErrorIs(t, err, fs.ErrNotExist)
}

// Errors have the end of long logs.
func TestLastWords(t *testing.T) {
	f := folder(t.TempDir())
	require.NoError(t, os.WriteFile(f.path(launchLog), []byte("begin"+strings.Repeat("x", tailSize)+" end\n"), 0o600))
	require.NoError(t, os.Mkdir(f.log(), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(f.log(), "server.log"), []byte("a\nb\n"), 0o600))
	assert.Equal(t, "launch.log: "+strings.Repeat("x", tailSize-5)+" end; log/server.log: a b", f.lastWords())
}
