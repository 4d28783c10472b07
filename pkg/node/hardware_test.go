package node

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/pkg/hardware/simulate"
)

func TestInstallHook(t *testing.T) {
	dir := t.TempDir()
	c := &Config{KubeletDir: dir, CDIHook: filepath.Join(dir, "hook")}
	err := c.installHook()
	require.ErrorContains(t, err, "read the program for CDI hooks")

	require.NoError(t, os.WriteFile(c.CDIHook, []byte("one"), 0o600))
	err = c.installHook()
	require.ErrorContains(t, err, "install the program for CDI hooks on the host")

	require.NoError(t, os.MkdirAll(c.dataDir(), 0o750))
	path := c.hookPath()
	require.NoError(t, c.installHook())
	assert.Equal(t, filepath.Join(dir, "plugins/gpu.tranche.dev/nvidia-cdi-hook"), path)
	first, err := os.Stat(path)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o755), first.Mode().Perm())

	// The same again touches nothing: containers may be running it.
	err = c.installHook()
	require.NoError(t, err)
	again, err := os.Stat(path)
	require.NoError(t, err)
	assert.True(t, os.SameFile(first, again))

	// Another one replaces it in one step: who runs the old one is not
	// disturbed ("text file busy").
	running, err := os.Open(path)
	require.NoError(t, err)
	defer running.Close()
	require.NoError(t, os.WriteFile(c.CDIHook, []byte("two"), 0o600))
	err = c.installHook()
	require.NoError(t, err)
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, "two", string(data))
	old := make([]byte, 3)
	_, err = running.Read(old)
	require.NoError(t, err)
	assert.Equal(t, "one", string(old))
	entries, err := os.ReadDir(c.dataDir())
	require.NoError(t, err)
	assert.Len(t, entries, 1)

	require.NoError(t, os.Remove(path))
	require.NoError(t, os.Mkdir(path, 0o700))
	err = c.installHook()
	require.ErrorContains(t, err, "install the program for CDI hooks on the host")
}

func TestOpenHardwareWithoutDriver(t *testing.T) {
	_, err := (&plugin{Config: &Config{HostRoot: t.TempDir(), KubeletDir: t.TempDir()}}).openHardware(quiet(t.Context()))
	require.ErrorIs(t, err, errNoHardware, "the plugin idles")
	require.ErrorContains(t, err, "install the NVIDIA driver on this node")
}

// A driver that is installed and not loaded is one to wait for.
func TestOpenHardwareDriverNotLoaded(t *testing.T) {
	m := newMachine(t, newAPI())
	require.NoError(t, os.MkdirAll(m.config.dataDir(), 0o750))
	p := &plugin{Config: m.config}
	h, err := p.openHardware(quiet(t.Context()))
	require.NoError(t, err)
	assert.NotEmpty(t, h.all()[0].load())
	require.NoError(t, h.Close(t.Context()))

	m.faults(simulate.Faults{Calls: []simulate.CallFault{{Call: "Init", GPU: "*", Error: 9}}})
	_, err = p.openHardware(quiet(t.Context()))
	require.ErrorIs(t, err, errNoHardware)
	require.ErrorContains(t, err, "open NVML")
}

func TestInventoryOfNode(t *testing.T) {
	c := &Config{NodeName: "a", Simulate: "h100x8", SimulateNodes: map[string]string{"b": "l4x4"}}
	assert.Equal(t, "h100x8", c.inventory())
	c.NodeName = "b"
	assert.Equal(t, "l4x4", c.inventory())
	assert.Empty(t, (&Config{NodeName: "a"}).inventory())
}
