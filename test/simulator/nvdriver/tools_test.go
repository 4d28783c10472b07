package nvdriver

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/test/simulator/nvtools"
)

func TestTools(t *testing.T) {
	root := t.TempDir()
	program := filepath.Join(t.TempDir(), "tools")
	bin := filepath.Join(root, nvtools.DriverBin)
	start := func(mps string) {
		t.Helper()
		_, err := New(parsed(t, mps+"gpus: [{model: L4-24GB}]\n"), Options{Root: root, Tools: program, Sleep: func(time.Duration) {}, Logf: t.Logf})
		require.NoError(t, err)
	}
	has := func(name, content string) {
		t.Helper()
		data, err := os.ReadFile(filepath.Join(bin, name))
		require.NoError(t, err)
		assert.Equal(t, content, string(data))
		info, err := os.Stat(filepath.Join(bin, name))
		require.NoError(t, err)
		assert.Equal(t, os.FileMode(0o755), info.Mode().Perm())
	}
	for _, version := range []string{"one", "one", "another"} {
		require.NoError(t, os.WriteFile(program, []byte(version), 0o600))
		start("")
		for _, name := range nvtools.Programs() {
			has(name, version)
		}
	}

	start("mps: false\n")
	has(nvtools.SMIProgram, "another")
	assert.NoFileExists(t, filepath.Join(bin, nvtools.ControlProgram))
	assert.NoFileExists(t, filepath.Join(bin, nvtools.ServerProgram))
	start("mps: true\n")
	has(nvtools.ControlProgram, "another")

	require.NoError(t, os.Remove(program))
	_, err := New(parsed(t, "gpus: [{model: L4-24GB}]\n"), Options{Root: root, Tools: program})
	require.ErrorContains(t, err, program)
}

func TestLoadingTheDriverSetsTimeSlicesBack(t *testing.T) {
	root := t.TempDir()
	n := machineIn(t, "l4x4", root)
	uuid, _ := handleOf(t, n, 0).GetUUID()
	require.NoError(t, nvtools.SetTimeSlice(root, uuid, 3))
	slice, err := nvtools.TimeSlice(root, uuid)
	require.NoError(t, err)
	require.Equal(t, "LONG", slice)
	require.NoError(t, ReloadDriver(root))
	slice, err = nvtools.TimeSlice(root, uuid)
	require.NoError(t, err)
	assert.Equal(t, "DEFAULT", slice)
}

func TestFaultsOfMPSAreChecked(t *testing.T) {
	_, err := ParseFaults([]byte("mps: {start: slowly}\n"))
	assert.ErrorContains(t, err, "mps.start")
	faults, err := ParseFaults([]byte("mps: {start: hang, startDelay: 2s}\n"))
	require.NoError(t, err)
	assert.Equal(t, "hang", faults.MPS.Start)
}
