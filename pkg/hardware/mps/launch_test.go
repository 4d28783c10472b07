package mps

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// A launcher becomes no daemon beside another one, nor where that cannot be told.
func TestLaunchThatIsRefused(t *testing.T) {
	self, err := identify(os.Getpid())
	require.NoError(t, err)
	for want, leave := range map[string]func(folder) error{
		"lock ":                                  func(f folder) error { return os.RemoveAll(string(f)) },
		"launch MPS daemon gpu: open ":           func(folder) error { return nil },
		errRuns.Error():                          func(f folder) error { return f.write("pid", self) },
		"find out whether MPS daemon gpu runs: ": func(f folder) error { return os.Mkdir(f.path("pid"), 0o700) },
	} {
		f := folder(filepath.Join(t.TempDir(), "gpu"))
		require.NoError(t, f.make())
		if !strings.HasSuffix(want, "open ") {
			require.NoError(t, f.write("spec.json", Spec{ID: "gpu"}))
		}
		require.NoError(t, leave(f))
		require.ErrorContains(t, launch{dir: f}.run(), want)
	}
}

// A program is a file that can be run, below the driver's folder or on the host.
func TestFindProgram(t *testing.T) {
	root := t.TempDir()
	p := place{root: root}
	const smi = "nvidia-smi-of-this-test"
	write := func(name string, mode os.FileMode) {
		t.Helper()
		name = filepath.Join(root, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o755))
		require.NoError(t, os.WriteFile(name, nil, mode))
	}
	write("usr/bin/"+smi, 0o644)
	write("bin", 0o644)
	require.NoError(t, os.MkdirAll(filepath.Join(root, "usr/sbin", smi), 0o755))
	_, err := p.find(smi)
	require.ErrorIs(t, err, errNoProgram)
	write("sbin/"+smi, 0o755)
	path, err := p.find(smi)
	require.NoError(t, err)
	assert.Equal(t, filepath.Join(root, "sbin", smi), path)
	_, err = place{root: "/"}.find(smi)
	assert.Equal(t, 1, strings.Count(err.Error(), " /usr/bin/"+smi), "each folder once")

	require.NoError(t, os.RemoveAll(filepath.Join(root, "usr")))
	require.NoError(t, os.Symlink("usr", filepath.Join(root, "usr"))) // leads to itself
	_, err = p.find(smi)
	require.ErrorIs(t, err, unix.ELOOP)
	assert.NotErrorIs(t, err, errNoProgram, "a folder that cannot be read")
}

// Programs that run beside a driver's folder find the libraries in it.
func TestEnvironment(t *testing.T) {
	root := t.TempDir()
	path := "PATH=/x/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	assert.Equal(t, []string{path}, place{root: root}.environment("/x/bin/nvidia-smi"))
	for _, dir := range []string{"usr/lib64", "lib/x86_64-linux-gnu"} {
		require.NoError(t, os.MkdirAll(filepath.Join(root, dir), 0o755))
	}
	require.NoError(t, os.WriteFile(filepath.Join(root, "lib64"), nil, 0o600))
	assert.Equal(t, []string{path, "LD_LIBRARY_PATH=" + root + "/usr/lib64:" + root + "/lib/x86_64-linux-gnu:" + root + "/lib"},
		place{root: root}.environment("/x/bin/nvidia-smi"))
	assert.Equal(t, []string{path}, place{root: "/"}.environment("/x/bin/nvidia-smi"))
}
