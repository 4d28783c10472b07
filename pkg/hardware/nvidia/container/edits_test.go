package container_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	"tags.cncf.io/container-device-interface/pkg/cdi"
	cdispecs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware/nvidia"
	"github.com/tranche-dev/tranche/test/nvidiatest"
	"github.com/tranche-dev/tranche/test/nvidiatest/driven"
)

// withNodes is a machine whose device nodes are real ones.
func withNodes(t *testing.T, inventory string, change ...func(*nvidia.Config)) *driven.Machine {
	t.Helper()
	m := driven.Simulated(t, inventory, change...)
	if !m.NVML.HasDeviceNodes() {
		t.Skip("needs root: device nodes are made with mknod")
	}
	return m
}

func commonOf(m *driven.Machine) *cdispecs.ContainerEdits {
	m.T.Helper()
	edits, err := m.CommonEdits(m.T.Context(), nil)
	require.NoError(m.T, err)
	return edits
}

func editsOf(m *driven.Machine, p gpu.Placement) *cdispecs.ContainerEdits {
	m.T.Helper()
	edits, err := m.Edits(m.T.Context(), p)
	require.NoError(m.T, err)
	require.NoError(m.T, (&cdi.ContainerEdits{ContainerEdits: edits}).Validate())
	return edits
}

func paths(edits *cdispecs.ContainerEdits) []string {
	var all []string
	for _, n := range edits.DeviceNodes {
		all = append(all, n.Path)
	}
	slices.Sort(all)
	return all
}

func TestCommonEdits(t *testing.T) {
	m := withNodes(t, "h100x8")
	edits := commonOf(m)
	require.NoError(t, (&cdi.ContainerEdits{ContainerEdits: edits}).Validate())

	assert.Equal(t, []string{"/dev/nvidia-modeset", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidiactl"}, paths(edits))
	for _, n := range edits.DeviceNodes {
		assert.Equal(t, "c", n.Type, n.Path)
		assert.NotZero(t, n.Major, n.Path)
		assert.Empty(t, n.HostPath, "the node is described in full")
	}
	assert.Equal(t, "NVIDIA_VISIBLE_DEVICES=void", edits.Env[len(edits.Env)-1], "last, so that it holds")
	assert.Equal(t, 1, len(slices.DeleteFunc(slices.Clone(edits.Env), func(e string) bool { return !strings.HasPrefix(e, "NVIDIA_VISIBLE_DEVICES") })))

	libcuda := slices.IndexFunc(edits.Mounts, func(x *cdispecs.Mount) bool { return strings.HasSuffix(x.ContainerPath, "/libcuda.so.580.159.04") })
	require.GreaterOrEqual(t, libcuda, 0)
	assert.NotContains(t, edits.Mounts[libcuda].ContainerPath, m.Root)
	for _, hook := range edits.Hooks {
		assert.Equal(t, "/usr/bin/nvidia-cdi-hook", hook.Path)
	}
}

func TestCommonEditsNameTheHostsPaths(t *testing.T) {
	m := withNodes(t, "h100x8", func(c *nvidia.Config) {
		c.HostDriverRoot = "/var/lib/tranche/simulated/driver"
		c.CDIHookPath = "/var/lib/tranche/bin/nvidia-cdi-hook"
	})
	edits := commonOf(m)
	require.NotEmpty(t, edits.Mounts)
	for _, mount := range edits.Mounts {
		if mount.ContainerPath == "/var/run/nvidia-container-devices/void" {
			// As NVIDIA_VISIBLE_DEVICES=void: a runtime that reads the list of GPUs from mounts adds none.
			assert.Equal(t, "/dev/null", mount.HostPath)
			continue
		}
		assert.True(t, strings.HasPrefix(mount.HostPath, "/var/lib/tranche/simulated/driver/"), mount.HostPath)
	}
	for _, hook := range edits.Hooks {
		assert.Equal(t, "/var/lib/tranche/bin/nvidia-cdi-hook", hook.Path)
		assert.NotContains(t, strings.Join(hook.Args, " "), m.Root)
	}
	for _, e := range edits.Env {
		assert.NotContains(t, e, m.Root)
	}
}

func TestEditsOfAWholeGPU(t *testing.T) {
	m := withNodes(t, "h100x8")
	gpus := m.GPUs()
	for _, g := range []gpu.GPU{gpus[0], gpus[7]} {
		edits := editsOf(m, g.Placements[len(g.Placements)-1])
		assert.Equal(t, []string{fmt.Sprintf("/dev/nvidia%d", g.Minor)}, paths(edits), "this GPU's node and no other's")
		assert.Equal(t, "c", edits.DeviceNodes[0].Type)
		assert.EqualValues(t, g.Minor, edits.DeviceNodes[0].Minor)
		assert.NotZero(t, edits.DeviceNodes[0].Major)
		for _, hook := range edits.Hooks {
			assert.NotContains(t, hook.Args, "apply-cuda-memory-limits", "it would obey the container's environment")
		}
	}
}

// Whoever may use mig/monitor sees the instances of all GPUs, those that are created later included.
func TestEditsOfAMonitor(t *testing.T) {
	m := withNodes(t, "h100x8")
	m.Made(m.Placement("1g.10gb", 6))
	edits := editsOf(m, gpu.Monitor(m.GPUs()[0].PCIAddress))
	assert.Equal(t, []string{"/dev/nvidia-caps/nvidia-cap2", "/dev/nvidia0"}, paths(edits))
	require.NoError(t, os.Remove(filepath.Join(m.Root, "proc/driver/nvidia/capabilities/mig/monitor")))
	assert.Equal(t, []string{"/dev/nvidia0"}, paths(editsOf(m, gpu.Monitor(m.GPUs()[0].PCIAddress))), "a driver without MIG")
}

func TestEditsOfAPartition(t *testing.T) {
	m := withNodes(t, "h100x8")
	a, b := m.Placement("1g.10gb", 6), m.Placement("1g.10gb", 5)
	m.Made(a)
	m.Made(b)
	first, second := editsOf(m, a), editsOf(m, b)
	require.Len(t, first.DeviceNodes, 3, "gpu, GPU instance, compute instance")
	assert.Equal(t, "/dev/nvidia0", first.DeviceNodes[0].Path)

	caps := func(e *cdispecs.ContainerEdits) []string {
		return paths(&cdispecs.ContainerEdits{DeviceNodes: e.DeviceNodes[1:]})
	}
	for _, path := range caps(first) {
		assert.NotContains(t, caps(second), path, "each sees its own instance only")
	}
	for _, n := range first.DeviceNodes[1:] {
		assert.Equal(t, "c", n.Type)
		assert.EqualValues(t, majorOf(m, "nvidia-caps"), n.Major)
		assert.Equal(t, fmt.Sprintf("/dev/nvidia-caps/nvidia-cap%d", n.Minor), n.Path)
		assert.Empty(t, n.HostPath, "the host need not have the node")
		assert.Equal(t, "rw", n.Permissions)
		require.NotNil(t, n.FileMode)
		assert.EqualValues(t, 0o444, *n.FileMode)
	}

	union := append(paths(commonOf(m)), paths(first)...)
	slices.Sort(union)
	assert.Len(t, slices.Compact(slices.Clone(union)), len(union), "no node twice")

	for _, p := range []gpu.Placement{a, gpu.Monitor(a.GPU), {GPU: a.GPU, Type: gpu.TypeGPU}} {
		m.Fail("GetPciInfo", nvml.ERROR_UNKNOWN, 0)
		_, err := m.Edits(t.Context(), p)
		assert.ErrorContains(t, err, "error getting PCI info")
	}
	m.Fail("GetUUID", nvml.ERROR_UNKNOWN, 0)
	_, err := m.Edits(t.Context(), gpu.Monitor(a.GPU))
	assert.ErrorIs(t, err, nvml.ERROR_UNKNOWN)
	m.NoFaults()
	require.NoError(t, os.RemoveAll(filepath.Join(m.Root, "proc/driver/nvidia/capabilities/gpu0")))
	_, err = m.Edits(t.Context(), a)
	assert.ErrorContains(t, err, "capability of the instance")
}

// majorOf reads the machine's /proc/devices in its own way.
func majorOf(m *driven.Machine, name string) int {
	m.T.Helper()
	data, err := os.ReadFile(filepath.Join(m.Root, "proc/devices"))
	require.NoError(m.T, err)
	for line := range strings.Lines(string(data)) {
		if number, found := strings.CutSuffix(strings.TrimSpace(line), " "+name); found {
			major, err := strconv.Atoi(strings.TrimSpace(number))
			require.NoError(m.T, err)
			return major
		}
	}
	m.T.Fatalf("no %s in %s", name, data)
	return 0
}

// moved is a GPU whose device node got another number.
type moved struct {
	nvml.Device
	minor *int
}

func (d moved) GetMinorNumber() (int, nvml.Return) { return *d.minor, nvml.SUCCESS }

func TestMinorIsReadAtUse(t *testing.T) {
	minor := 0
	m := withNodes(t, "h100x8", func(c *nvidia.Config) {
		lib := c.NVML
		c.NVML = &movedLibrary{nvidiatest.Trap{Interface: lib, Wrap: func(d nvml.Device) nvml.Device { return moved{d, &minor} }}}
	})
	whole := m.Whole()
	assert.Equal(t, []string{"/dev/nvidia0"}, paths(editsOf(m, whole)))
	minor = 5
	assert.Equal(t, []string{"/dev/nvidia5"}, paths(editsOf(m, whole)))
}

// movedLibrary wraps the handles that nvcdi looks up too.
type movedLibrary struct{ nvidiatest.Trap }

func (l *movedLibrary) DeviceGetHandleByUUID(uuid string) (nvml.Device, nvml.Return) {
	device, ret := l.Interface.DeviceGetHandleByUUID(uuid)
	if ret != nvml.SUCCESS {
		return nil, ret
	}
	return l.Wrap(device), ret
}

func TestCommonEditsShareNothing(t *testing.T) {
	m := withNodes(t, "h100x8")
	want := commonOf(m)
	for range 3 { // made, then cached
		edits := commonOf(m)
		assert.Equal(t, want, edits)
		edits.DeviceNodes[0].Path = "/dev/spoilt"
		edits.DeviceNodes = append(edits.DeviceNodes[:1], &cdispecs.DeviceNode{Path: "/dev/more"})
		edits.Env[0] = "SPOILT=1"
		edits.Mounts[0].HostPath = "/spoilt"
		edits.Hooks[0].Args[0] = "spoilt"
	}
	assert.Equal(t, want, commonOf(m))
}

// upgraded is a library that tells another driver version, or none.
type upgraded struct {
	nvml.Interface
	version *string
}

func (l *upgraded) SystemGetDriverVersion() (string, nvml.Return) {
	if *l.version == "" {
		return "", nvml.ERROR_UNKNOWN
	}
	return *l.version, nvml.SUCCESS
}

func TestDraDriverNvidiaGpuIssue1144CommonEditsFollowTheDriver(t *testing.T) {
	version := "580.159.04"
	m := withNodes(t, "h100x8", func(c *nvidia.Config) { c.NVML = &upgraded{c.NVML, &version} })
	require.NotEmpty(t, commonOf(m).Mounts)
	version = "590.48.01"
	_, err := m.CommonEdits(t.Context(), nil)
	require.Error(t, err, "the new version's files are not there yet, and the old ones are not handed out")
	assert.ErrorContains(t, err, m.Config.DriverRoot)
	version = ""
	_, err = m.CommonEdits(t.Context(), nil)
	require.ErrorIs(t, err, nvml.ERROR_UNKNOWN)
	version = "580.159.04"
	assert.NotEmpty(t, commonOf(m).Mounts)
}

func TestDraDriverNvidiaGpuIssue1380CommonEditsFollowTheFiles(t *testing.T) {
	m := withNodes(t, "h100x8")
	before := commonOf(m)
	var gone string
	for _, mount := range before.Mounts {
		if strings.Contains(mount.HostPath, "nvidia-smi") {
			gone = mount.HostPath
		}
	}
	require.NotEmpty(t, gone)
	require.NoError(t, os.Remove(gone))
	for _, mount := range commonOf(m).Mounts {
		assert.NotEqual(t, gone, mount.HostPath)
	}
}

func TestDraDriverNvidiaGpuIssue1380IncompleteEditsAreRefusedAndNotKept(t *testing.T) {
	m := withNodes(t, "h100x8")
	uvm := filepath.Join(m.Root, "driver/dev/nvidia-uvm")
	aside := uvm + ".aside"
	require.NoError(t, os.Rename(uvm, aside))
	_, err := m.CommonEdits(t.Context(), nil)
	require.ErrorContains(t, err, "no device node /dev/nvidia-uvm")
	assert.ErrorContains(t, err, "nvidia-modprobe")
	require.NoError(t, os.Rename(aside, uvm))
	assert.Contains(t, paths(commonOf(m)), "/dev/nvidia-uvm")
}

func TestMissingNodeOfTheGPUIsNamed(t *testing.T) {
	m := withNodes(t, "h100x8")
	require.NoError(t, os.Remove(filepath.Join(m.Root, "driver/dev/nvidia0")))
	_, err := m.Edits(t.Context(), m.Whole())
	assert.ErrorContains(t, err, "no device node /dev/nvidia0")
	assert.ErrorContains(t, err, "nvidia-modprobe -c0")
}

// A reload of nvidia-uvm may give it another major number, under the same driver.
func TestCommonEditsFollowTheDeviceNumbers(t *testing.T) {
	m := withNodes(t, "h100x8")
	uvm := func() *cdispecs.DeviceNode {
		for _, node := range commonOf(m).DeviceNodes {
			if node.Path == "/dev/nvidia-uvm" {
				return node
			}
		}
		t.Fatal("no /dev/nvidia-uvm")
		return nil
	}
	before := uvm()
	require.NotZero(t, before.Major, "the edits contain the numbers")
	path := filepath.Join(m.Root, "driver/dev/nvidia-uvm")
	require.NoError(t, os.Remove(path))
	require.NoError(t, unix.Mknod(path, unix.S_IFCHR|0o666, int(unix.Mkdev(uint32(before.Major)+1, uint32(before.Minor)))))
	assert.Equal(t, before.Major+1, uvm().Major)
}
