package node

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware/nvidia"
	"github.com/tranche-dev/tranche/test/nodetest"
	"github.com/tranche-dev/tranche/test/simulator/nvdriver"
	"github.com/tranche-dev/tranche/test/simulator/nvstate"
)

// byHand does to a partition of the first GPU what an administrator may, without the plugin.
func (m *machine) byHand(do func(*nvidia.Driver, gpu.Placement) error, name string) {
	m.t.Helper()
	library, err := nvdriver.New(m.inventory(), nvdriver.Options{Root: m.simulated.Root, Seed: nodetest.NodeName, Tools: m.simulated.Tools})
	require.NoError(m.t, err)
	driver, err := nvidia.New(nvidia.Config{NVML: library, DriverRoot: m.simulated.Root})
	require.NoError(m.t, err)
	require.NoError(m.t, driver.Open(m.t.Context()))
	gpus, err := driver.Inventory(m.t.Context())
	require.NoError(m.t, err)
	p, ok := gpus[0].Placement(name)
	require.True(m.t, ok)
	require.NoError(m.t, do(driver, p))
	require.NoError(m.t, driver.Close(m.t.Context()))
}

func (m *machine) makeForeign(name string) {
	m.t.Helper()
	m.byHand(func(d *nvidia.Driver, p gpu.Placement) error {
		_, err := d.Create(m.t.Context(), p)
		return err
	}, name)
}

func (m *machine) destroy(name string) {
	m.t.Helper()
	m.byHand(func(d *nvidia.Driver, p gpu.Placement) error { return d.Destroy(m.t.Context(), p) }, name)
}

// A partition that Tranche did not make is left alone. What overlaps it is tainted and cannot be
// prepared, the rest of the GPU can be allocated.
func TestForeignPartition(t *testing.T) {
	m := newMachine(t, nodetest.NewAPI())
	_, stop := m.start()
	stop()
	m.makeForeign(half0)

	k, _ := m.start()
	note := nodetest.AwaitEvent(t, m.api, "ForeignPartition", half0)
	assert.Contains(t, note, "It is left alone")
	assert.Contains(t, note, "nvidia-smi mig -i "+pci0+" -dci -gi ")
	awaitDevices(t, m.api, false, func(d resourceapi.Device) bool {
		secondHalf := strings.Contains(d.Name, "-mig-") && d.Name[len(d.Name)-1] >= '4'
		if onGPU(d) != pci0 || secondHalf {
			return untainted(d)
		}
		return len(d.Taints) == 1 && d.Taints[0].Key == names.TaintForeignPartition && d.Taints[0].Effect == resourceapi.DeviceTaintEffectNoSchedule
	})
	for uid, device := range map[string]string{"a": half0, "b": card0} {
		c := nodetest.Allocate(t, m.api, uid, device)
		assert.Contains(t, k.refused(c), "that Tranche did not make")
		require.Empty(t, k.unprepare(c))
	}
	assert.Equal(t, []string{half0}, m.partitions())
	m.destroy(half0)
	awaitDevices(t, m.api, false, untainted)

	// The same while the plugin runs.
	m.makeForeign(half0)
	awaitDevices(t, m.api, false, func(d resourceapi.Device) bool { return d.Name != card0 || !untainted(d) })
	m.destroy(half0)
	awaitDevices(t, m.api, false, untainted)
}

// Which partitions are foreign is unknown after a rollback to a version that cannot read what is applied.
func TestForeignPartitionIsNotRemovedBesideAnUnknownProfile(t *testing.T) {
	m := newMachine(t, nodetest.NewAPI())
	m.config.RemoveIdleForeign = true
	_, stop := m.start()
	stop()
	m.makeForeign(half0)
	require.NoError(t, os.WriteFile(m.config.profileFile(), []byte(`{"version":9,"minReader":9}`), 0o600))
	m.start()
	unknown := nodetest.AwaitEvent(t, m.api, "ProfileUnknown", m.config.profileFile())
	assert.Contains(t, unknown, "so the node's profile and its partitions do not change until it can be")
	assert.Contains(t, unknown, "it has version 9 and needs a plugin that reads version 9, this one reads 1: run the newer version of Tranche")
	nodetest.AwaitEvent(t, m.api, "ForeignPartition", half0)
	assert.Equal(t, []string{half0}, m.partitions())
}

// With RemoveIdleForeign, foreign partitions go as soon as no process uses them.
func TestForeignPartitionIsRemoved(t *testing.T) {
	m := newMachine(t, nodetest.NewAPI())
	m.config.RemoveIdleForeign = true
	_, stop := m.start()
	stop()
	m.makeForeign(half0)
	state, err := nvstate.Store(m.simulated.Root).Read()
	require.NoError(t, err)
	m.faults(nvdriver.Faults{Processes: []nvdriver.Process{{GPU: pci0, GPUInstance: &state.GPUs[0].Instances[0].ID, PID: 4711}}})
	m.start()
	note := nodetest.AwaitEvent(t, m.api, "ForeignPartition", half0)
	assert.Contains(t, note, "Tranche could not remove it")
	assert.Contains(t, note, "4711")
	assert.Equal(t, []string{half0}, m.partitions())
	m.faults(nvdriver.Faults{})
	nodetest.AwaitEvent(t, m.api, "ForeignPartitionRemoved", half0)
	assert.Empty(t, m.partitions())
	awaitDevices(t, m.api, false, untainted)
}
