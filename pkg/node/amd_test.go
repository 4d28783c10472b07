package node

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/tranche-dev/tranche/pkg/hardware/amd"
	"github.com/tranche-dev/tranche/pkg/hardware/simulate/amdgpu"
	"github.com/tranche-dev/tranche/pkg/hardware/simulate/inventory"
)

// The AMD cards of the simulated machines of these tests.
const (
	amdAddress = "0000:05:00.0"
	amdCard0   = "gpu-0000-05-00-0"
	amdCard1   = "gpu-0000-26-00-0"
	cpx3       = amdCard0 + "-cpx-3"
	dpx0       = amdCard0 + "-dpx-0"
)

const (
	twoAMDCards = `
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
	m.write("inventories/two.yaml", twoAMDCards)
	return m
}

func newMixedMachine(t *testing.T, api *fake.Clientset) *machine {
	t.Helper()
	m := newMachine(t, api)
	m.write("inventories/two.yaml", oneOfEach)
	return m
}

// kernel is the simulated kernel, as another process sees it.
func (m *machine) kernel() amd.Files {
	m.t.Helper()
	inv, err := inventory.Load("two", m.config.SimulateDir)
	require.NoError(m.t, err)
	kernel, err := amdgpu.New(inv, amdgpu.Options{Root: m.config.SimulateRoot, Seed: nodeName})
	require.NoError(m.t, err)
	return kernel
}

// mode is the compute mode of the first AMD card.
func (m *machine) mode() string {
	m.t.Helper()
	data, err := m.kernel().ReadFile("/sys/bus/pci/devices/" + amdAddress + "/current_compute_partition")
	require.NoError(m.t, err)
	return strings.TrimSpace(string(data))
}

// amdFaults makes the simulated kernel fail from now on.
func (m *machine) amdFaults(f amdgpu.Faults) {
	m.t.Helper()
	require.NoError(m.t, amdgpu.SetFaults(m.config.SimulateRoot, f))
}

// A claim of an AMD partition is prepared: the card is switched, the container
// gets its render node and KFD and nothing else; and it is released, after which
// the mode stays.
func TestAMDClaim(t *testing.T) {
	m := newAMDMachine(t, newAPI())
	k, stop := m.start()
	awaitDevices(t, m.api, false, untainted)
	assert.Len(t, published(t, m.api), 2*15)
	assert.NoFileExists(t, m.config.hookPath(), "that is NVIDIA's")
	require.Equal(t, "SPX", m.mode())

	c := allocate(t, m.api, "a", cpx3)
	assert.Equal(t, []string{"gpu.tranche.dev/claim=" + cpx3 + "_a"}, k.mustPrepare(c))
	assert.Equal(t, "CPX", m.mode())
	spec := m.spec("a")
	for _, part := range []string{`"path":"/dev/kfd"`, `"path":"/dev/dri/renderD131"`, `"permissions":"rw"`, "cpx"} {
		assert.Contains(t, spec, part)
	}
	assert.Equal(t, 2, strings.Count(spec, `"hostPath"`), "two device nodes")
	assert.NotContains(t, spec, "/dev/dri/card")
	assert.NotContains(t, spec, "nvidia")
	data, err := os.ReadFile(filepath.Join(m.config.dataDir(), "dra-device-metadata", c.Namespace+"_"+c.Name, "r0", "metadata.json"))
	require.NoError(t, err)
	for _, part := range []string{`"profile":{"string":"cpx"}`, `"memoryPartition":{"string":"NPS1"}`, `"partitionIndex":{"int":3}`, `"memoryBytes":{"int":`} {
		assert.Contains(t, strings.Join(strings.Fields(string(data)), ""), part)
	}
	assert.Len(t, m.records(), 1)

	// Another one of the same mode finds it live; a whole card needs nothing.
	other := allocate(t, m.api, "b", amdCard0+"-cpx-4")
	k.mustPrepare(other)
	whole := allocate(t, m.api, "c", amdCard1)
	k.mustPrepare(whole)
	for _, claim := range []*resourceapi.ResourceClaim{c, other, whole} {
		require.Empty(t, k.unprepare(claim))
	}
	m.nothingHeld()
	assert.Equal(t, "CPX", m.mode())
	stop()
}
