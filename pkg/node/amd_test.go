package node

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/hardware/amd/sysfs"
	"github.com/tranche-dev/tranche/test/nodetest"
	"github.com/tranche-dev/tranche/test/simulator/amdgpu"
)

// The AMD GPUs of the simulated machines of these tests.
const (
	amdAddress = "0000:05:00.0"
	amdCard0   = "gpu-0000-05-00-0"
	amdCard1   = "gpu-0000-26-00-0"
	cpx3       = amdCard0 + "-cpx-3"
	dpx0       = amdCard0 + "-dpx-0"
)

const (
	twoAMDGPUs = `
amd: {delays: {switchMode: 0s, renderNodes: 0s}}
gpus:
- {model: MI300X, count: 2, pci: ["0000:05:00.0", "0000:26:00.0"]}
`
	oneOfEach = `
delays: {createGPUInstance: 0s, createComputeInstance: 0s, destroyComputeInstance: 0s, destroyGPUInstance: 0s, setMigMode: 0s}
amd: {delays: {switchMode: 0s, renderNodes: 0s}}
gpus:
- {model: H100-80GB, pci: ["0000:1b:00.0"]}
- {model: MI300X, pci: ["0000:05:00.0"]}
`
)

func newAMDMachine(t *testing.T, api *fake.Clientset) *machine {
	t.Helper()
	m := newMachine(t, api)
	m.write("inventories/two.yaml", twoAMDGPUs)
	return m
}

func newMixedMachine(t *testing.T, api *fake.Clientset) *machine {
	t.Helper()
	m := newMachine(t, api)
	m.write("inventories/two.yaml", oneOfEach)
	return m
}

// kernel is the simulated kernel, as another process sees it.
func (m *machine) kernel() sysfs.Files {
	m.t.Helper()
	kernel, err := amdgpu.New(m.inventory(), amdgpu.Options{Root: m.simulated.Root, Seed: nodetest.NodeName})
	require.NoError(m.t, err)
	return kernel
}

// mode is the compute mode of the first AMD GPU.
func (m *machine) mode() string {
	m.t.Helper()
	data, err := m.kernel().ReadFile("/sys/bus/pci/devices/" + amdAddress + "/current_compute_partition")
	require.NoError(m.t, err)
	return strings.TrimSpace(string(data))
}

// amdFaults makes the simulated kernel fail from now on.
func (m *machine) amdFaults(f amdgpu.Faults) {
	m.t.Helper()
	require.NoError(m.t, amdgpu.SetFaults(m.simulated.Root, f))
}

// A claim of an AMD partition is prepared: the GPU is switched, the container
// gets its render node and KFD and nothing else; and it is released, after which
// the mode stays.
func TestAMDClaim(t *testing.T) {
	m := newAMDMachine(t, nodetest.NewAPI())
	k, stop := m.start()
	awaitDevices(t, m.api, false, untainted)
	assert.Len(t, nodetest.Published(t, m.api), 2*(15+2), "partitions, the whole GPU, its shares")
	assert.NoFileExists(t, m.hookPath(), "that is NVIDIA's")
	require.Equal(t, "SPX", m.mode())

	c := nodetest.Allocate(t, m.api, "a", cpx3)
	assert.Equal(t, []string{"gpu.tranche.dev/claim=" + cpx3 + "_a"}, k.mustPrepare(c))
	assert.Equal(t, "CPX", m.mode())
	spec := m.spec("a")
	for _, part := range []string{`"path":"/dev/kfd"`, `"path":"/dev/dri/renderD131"`, `"permissions":"rw"`, "cpx"} {
		assert.Contains(t, spec, part)
	}
	assert.Equal(t, 2, strings.Count(spec, `"hostPath"`), "two device nodes")
	assert.NotContains(t, spec, "/dev/dri/gpu")
	assert.NotContains(t, spec, "nvidia")
	data, err := os.ReadFile(filepath.Join(m.config.DataDir(), "dra-device-metadata", c.Namespace+"_"+c.Name, "r0", "metadata.json"))
	require.NoError(t, err)
	for _, part := range []string{`"profile":{"string":"cpx"}`, `"memoryPartition":{"string":"NPS1"}`, `"partitionIndex":{"int":3}`, `"memory":{"int":`} {
		assert.Contains(t, strings.Join(strings.Fields(string(data)), ""), part)
	}
	assert.Len(t, m.records(), 1)

	// Another one of the same mode finds it live; a whole GPU needs nothing.
	other := nodetest.Allocate(t, m.api, "b", amdCard0+"-cpx-4")
	k.mustPrepare(other)
	whole := nodetest.Allocate(t, m.api, "c", amdCard1)
	k.mustPrepare(whole)
	for _, claim := range []*resourceapi.ResourceClaim{c, other, whole} {
		require.Empty(t, k.unprepare(claim))
	}
	m.nothingHeld()
	assert.Equal(t, "CPX", m.mode())
	stop()
}

// A process that belongs to no claim blocks a mode change: a claim that needs another mode is
// refused with the name of the process, and devices of other modes are tainted, until the process
// ends.
func TestBusyGPU(t *testing.T) {
	m := newAMDMachine(t, nodetest.NewAPI())
	k, stop := m.start()
	awaitDevices(t, m.api, false, untainted)
	require.NoError(t, amdgpu.StartProcess(m.simulated.Root, amdgpu.Process{PID: 4711, Name: "python3", GPUs: []string{amdAddress}}))
	message := k.refused(nodetest.Allocate(t, m.api, "a", cpx3))
	assert.Contains(t, message, "create "+cpx3+": GPU "+amdAddress+" cannot be put into mode CPX: process 4711 (python3) uses it")
	m.nothingHeld()

	busy := func(d resourceapi.Device) bool {
		needsSwitch := isPartitionOf(d, amdCard0)
		return needsSwitch == (len(d.Taints) == 1 && d.Taints[0].Key == names.TaintBusy && d.Taints[0].Effect == resourceapi.DeviceTaintEffectNoSchedule) &&
			needsSwitch == !untainted(d)
	}
	awaitDevices(t, m.api, false, busy)
	note := nodetest.AwaitEvent(t, m.api, "GPUBusy", "python3")
	assert.Contains(t, note, "GPU "+amdCard0+": cannot allocate cpx-0, cpx-1, ")
	assert.Contains(t, note, "the GPU stays in mode SPX as long as process 4711 (python3) uses it")
	var text bytes.Buffer
	require.NoError(t, PrintReport(t.Context(), m.config.DataDir(), &text, false))
	assert.Contains(t, text.String(), "cannot be allocated now: cpx-0, cpx-1, ")
	assert.Contains(t, text.String(), "the GPU stays in mode SPX as long as process 4711 (python3) uses it")

	// A restart takes no taint away, and writes nothing.
	stop()
	m.api.ClearActions()
	k, _ = m.start()
	setAllocatable(t, m.api, "8") // of NVIDIA's, which is nobody's business here
	k.works(nodetest.Allocate(t, m.api, "b", amdCard1))
	awaitDevices(t, m.api, false, busy)
	assert.Zero(t, nodetest.SliceWrites(m.api))
	k.works(nodetest.Allocate(t, m.api, "d", amdCard0)) // in the mode that the GPU is in

	require.NoError(t, amdgpu.EndProcess(m.simulated.Root, 4711))
	awaitDevices(t, m.api, false, untainted)
	nodetest.AwaitEvent(t, m.api, "GPUNoLongerBusy", "python3")
	k.works(nodetest.Allocate(t, m.api, "c", cpx3))
}

// isPartitionOf reports whether a device is a partition of a GPU, or a share of one.
func isPartitionOf(d resourceapi.Device, gpuID string) bool {
	return strings.HasPrefix(d.Name, gpuID+"-") && d.Attributes["profile"].StringValue != nil
}

// The pods of a GPU are not in anybody's way: the counters keep other modes from
// it as long as they are there.
func TestHoldersAreNoObstacle(t *testing.T) {
	m := newAMDMachine(t, nodetest.NewAPI())
	k, _ := m.start()
	awaitDevices(t, m.api, false, untainted)
	c := nodetest.Allocate(t, m.api, "a", cpx3)
	k.mustPrepare(c)
	index := 3
	require.NoError(t, amdgpu.StartProcess(m.simulated.Root, amdgpu.Process{PID: 4711, Name: "python3", GPUs: []string{amdAddress}, Partition: &index}))
	before := nodetest.SliceWrites(m.api)
	// Something else is seen on the other GPU after some looks, and nothing here.
	m.amdFaults(amdgpu.Faults{Processes: []amdgpu.Process{{PID: 4712, Name: "stress", GPUs: []string{"0000:26:00.0"}}}})
	nodetest.AwaitEvent(t, m.api, "GPUBusy", "stress")
	awaitDevices(t, m.api, false, func(d resourceapi.Device) bool { return untainted(d) == !isPartitionOf(d, amdCard1) })
	assert.Equal(t, before+1, nodetest.SliceWrites(m.api))
}

// A node of both vendors: pods of either, and of both at once.
func TestBothVendorsOnOneNode(t *testing.T) {
	m := newMixedMachine(t, nodetest.NewAPI())
	k, _ := m.start()
	awaitDevices(t, m.api, false, untainted)
	assert.FileExists(t, m.hookPath())
	c := nodetest.Allocate(t, m.api, "a", small0, cpx3)
	k.mustPrepare(c)
	assert.Equal(t, []string{small0}, m.partitions())
	assert.Equal(t, "CPX", m.mode())
	spec := m.spec("a")
	assert.Contains(t, spec, "/dev/dri/renderD131")
	assert.Contains(t, spec, "nvidia-cdi-hook")

	var text bytes.Buffer
	require.NoError(t, PrintReport(t.Context(), m.config.DataDir(), &text, false))
	assert.Equal(t, 2, strings.Count(text.String(), "claim team/claim-a, pod pod-a"), text.String())
	assert.NotContains(t, text.String(), "not made by Tranche", "partitions of a mode are nobody's")

	amdOnly := nodetest.Allocate(t, m.api, "b", amdCard0+"-cpx-0")
	k.mustPrepare(amdOnly)
	assert.NotContains(t, m.spec("b"), "nvidia", "nothing of NVIDIA's comes with an AMD GPU")
	require.Empty(t, k.unprepare(amdOnly))
	require.Empty(t, k.unprepare(c))
	m.nothingHeld()
}
