package node

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/events"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/simulate/nvdriver"
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

// pluginOf is a plugin that has begun, as far as drivers are concerned.
func pluginOf(c *Config) *plugin {
	node := newNodeWatch(fake.NewClientset(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName}})
	p := &plugin{Config: c, node: node, drivers: &drivers{}, hardware: &hardware{}, roster: &roster{}, events: silentEvents()}
	p.openers, _ = c.vendors(quiet(context.Background()))
	return p
}

// silentEvents go nowhere.
func silentEvents() *eventSink {
	return &eventSink{recorder: &events.FakeRecorder{}, node: &corev1.ObjectReference{Kind: "Node", Name: nodeName}}
}

func TestOpenHardwareWithoutDriver(t *testing.T) {
	p := pluginOf(&Config{HostRoot: t.TempDir(), KubeletDir: t.TempDir()})
	assert.Empty(t, p.openDrivers(quiet(t.Context())))
	require.NoError(t, p.drivers.problem(), "the plugin idles")
	assert.Contains(t, p.whyIdle(), "install the NVIDIA driver on this node")
}

// A driver that is loaded and cannot be opened is one that the node should have.
func TestOpenHardwareDriverNotOpened(t *testing.T) {
	m := newMachine(t, newAPI())
	require.NoError(t, os.MkdirAll(m.config.dataDir(), 0o750))
	p := pluginOf(m.config)
	added := p.openDrivers(quiet(t.Context()))
	require.Len(t, added, 1)
	load := added[0].load()
	assert.NotEmpty(t, load)
	require.NoError(t, p.hardware.Close(t.Context()))

	m.faults(nvdriver.Faults{Calls: []nvdriver.CallFault{{Call: "Init", GPU: "*", Error: 18}}})
	p = pluginOf(m.config)
	assert.Empty(t, p.openDrivers(quiet(t.Context())))
	require.ErrorContains(t, p.drivers.problem(), "the NVIDIA driver of this node cannot be used: open NVML")
	assert.Equal(t, load, p.hardware.find(gpu.NVIDIA).load(), "what it holds stays held")
	require.NoError(t, nvdriver.UnloadDriver(m.config.SimulateRoot))
	p = pluginOf(m.config)
	assert.Empty(t, p.openDrivers(quiet(t.Context())))
	require.NoError(t, p.drivers.problem(), "one that is not loaded is waited for")
}

func TestInventoryOfNode(t *testing.T) {
	c := &Config{NodeName: "a", Simulate: "h100x8", SimulateNodes: map[string]string{"b": "l4x4"}}
	assert.Equal(t, "h100x8", c.inventory())
	c.NodeName = "b"
	assert.Equal(t, "l4x4", c.inventory())
	assert.Empty(t, (&Config{NodeName: "a"}).inventory())
}
