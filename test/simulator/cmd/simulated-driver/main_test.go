package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/cmd/tranche-kubelet-plugin/plugin"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/node"
	"github.com/tranche-dev/tranche/pkg/publish/models"
	"github.com/tranche-dev/tranche/test/simulator/nvdriver"
	"github.com/tranche-dev/tranche/test/simulator/nvml/libraries"
	_ "github.com/tranche-dev/tranche/test/simulator/plainnodes"
)

// The programs that are installed are this one.
func TestMain(m *testing.M) {
	if exitCode, ok := byName(os.Args); ok {
		os.Exit(exitCode)
	}
	os.Exit(m.Run())
}

func TestInventoryOfNode(t *testing.T) {
	o := options{node: "b", inventory: "h100x8", nodes: map[string]string{"b": "l4x4", "c": ""}}
	assert.Equal(t, "l4x4", o.inventoryName())
	o.node = "a"
	assert.Equal(t, "h100x8", o.inventoryName())
	o.node = "c"
	assert.Empty(t, o.inventoryName())
}

// A node without simulated GPUs has no machine, not even one that an earlier instance has left.
func TestNodeWithoutSimulatedGPUs(t *testing.T) {
	o := options{root: filepath.Join(t.TempDir(), "tranche", "machine"), instance: "one"}
	require.NoError(t, os.MkdirAll(o.sys(), 0o755))
	require.ErrorContains(t, o.ready(), "does not name instance one yet")
	m, err := o.install()
	require.NoError(t, err)
	assert.Equal(t, "this node has no simulated GPUs", m.String())
	assert.NoDirExists(t, o.root)
	require.NoError(t, o.ready())
	require.NoError(t, m.close())
}

// A process allocates for the control group in which it is, also after it has moved to another.
func TestAllocate(t *testing.T) {
	inv, err := models.LoadInventory("h100x8")
	require.NoError(t, err)
	root, proc := t.TempDir(), t.TempDir()
	driver, err := nvdriver.New(inv, nvdriver.Options{Root: root, Library: "615"})
	require.NoError(t, err)
	pod := filepath.Join(nvdriver.Groups(root), "kubepods/poda")
	require.NoError(t, os.MkdirAll(filepath.Join(pod, "c/child"), 0o755))
	require.NoError(t, os.MkdirAll(filepath.Join(proc, "7"), 0o755))
	in := func(lines string) {
		require.NoError(t, os.WriteFile(filepath.Join(proc, "7/cgroup"), []byte(lines), 0o600))
	}
	address := inv.Hardware("a")[0].PCIAddress
	require.Equal(t, nvml.SUCCESS, driver.Init())
	d, ret := driver.DeviceGetHandleByPciBusId(address)
	require.Equal(t, nvml.SUCCESS, ret)
	require.Equal(t, nvml.SUCCESS, d.SetMemoryLimits_v1(pod, 0, 2000<<20))

	in("3:memory:/x\n0::/kubepods/poda/c\n")
	require.NoError(t, allocate(root, proc, []string{address, "7", "1500"}))
	in("0::/kubepods/poda/c/child\n")
	require.ErrorIs(t, allocate(root, proc, []string{address, "7", "501"}), nvdriver.ErrOutOfMemory)
	require.NoError(t, allocate(root, proc, []string{address, "7", "500"}))
	require.NoError(t, allocate(root, proc, []string{address, "7", "0"}))
	require.NoError(t, allocate(root, proc, []string{address, "7", "2000"}))
	in("0::/elsewhere\n")
	require.NoError(t, allocate(root, proc, []string{address, "7", "9000"}), "no limit")
	in("3:memory:/x\n")
	require.Error(t, allocate(root, proc, []string{address, "7", "1"}))
	for _, args := range [][]string{{}, {address, "x", "1"}, {address, "7", "x"}, {address, "8", "1"}} {
		require.Error(t, allocate(root, proc, args))
	}
}

func TestBadFlags(t *testing.T) {
	require.ErrorContains(t, command(t.Context(), []string{"--inventory=none", "--root=" + t.TempDir()}), `unknown inventory "none"`)
	require.ErrorContains(t, command(t.Context(), []string{"h100x8"}), "unknown arguments: h100x8")
}

// The plugin as it is shipped finds the GPUs of both vendors by their drivers' files, and what a
// modprobe and a reboot do to them.
func TestPluginOnInstalledDrivers(t *testing.T) {
	if _, err := os.Stat("/dev/fuse"); err != nil || os.Geteuid() != 0 {
		t.Skip("needs root and /dev/fuse")
	}
	built := t.TempDir()
	require.NoError(t, libraries.Build(t.Context(), built, 580))
	self, err := os.Executable()
	require.NoError(t, err)
	root := filepath.Join(t.TempDir(), "machine")
	config := &plugin.Options{MachineRoot: root, CDIHook: self, Config: node.Config{NodeName: "node-a", HostRoot: "/", KubeletDir: t.TempDir()}}
	require.NoError(t, os.MkdirAll(config.DataDir(), 0o750))
	o := options{node: "node-a", inventory: "h100x2-mi300x2", root: root, libraries: built, library: "580", program: self, instance: "one", pluginDir: config.DataDir()}
	m, err := o.install()
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, o.detach()) })

	inv, err := models.LoadInventory("h100x2-mi300x2")
	require.NoError(t, err)
	want := map[gpu.Vendor][]string{}
	for _, g := range inv.Hardware("node-a") {
		want[g.Vendor] = append(want[g.Vendor], g.Name())
	}
	machine := plugin.Host(config)
	vendors, err := machine.Vendors()
	require.NoError(t, err)
	for _, v := range vendors {
		opened, err := v.Open(t.Context())
		require.NoError(t, err, v.Name())
		found, err := opened.Driver.Inventory(t.Context())
		require.NoError(t, err)
		var names []string
		for _, g := range found {
			names = append(names, g.Name())
			assert.Greater(t, len(g.Placements), 10, "%s can be partitioned", g.Name())
		}
		assert.ElementsMatch(t, want[v.Name()], names)
		require.NoError(t, opened.Driver.Close(context.WithoutCancel(t.Context())))
	}

	program := func(words ...string) {
		t.Helper()
		said, err := exec.CommandContext(t.Context(), filepath.Join(root, "driver/usr/bin", words[0]), words[1:]...).CombinedOutput()
		require.NoError(t, err, "%s", said)
	}
	module := filepath.Join(root, "sys/module/amdgpu")
	require.DirExists(t, module)
	program("modprobe", "-r", "amdgpu")
	require.NoDirExists(t, module)
	program("modprobe", "amdgpu")
	require.DirExists(t, module)
	before := machine.BootID()
	program("systemctl", "reboot")
	assert.NotEmpty(t, before)
	assert.NotEqual(t, before, machine.BootID())
	program("nvidia-smi")

	// Another instance goes on with the machine, while this one runs or after it was killed. The end
	// of the earlier one changes nothing, and neither does its own: a plugin is on this node.
	boot := machine.BootID()
	o2 := o
	o2.instance = "two"
	again, err := o2.install()
	require.NoError(t, err)
	require.Error(t, o.ready())
	require.NoError(t, o2.ready())
	require.NoError(t, m.close())
	assert.Equal(t, boot, machine.BootID())
	require.DirExists(t, module)
	require.NoError(t, again.close())
	require.NoDirExists(t, module)
	assert.Equal(t, boot, machine.BootID())

	// Without the plugin, nothing stays.
	again, err = o2.install()
	require.NoError(t, err)
	require.NoError(t, os.RemoveAll(config.DataDir()))
	require.NoError(t, again.close())
	left, err := os.ReadDir(filepath.Dir(root))
	require.NoError(t, err)
	assert.Empty(t, left)
}
