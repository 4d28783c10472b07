package partition_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/profile"
	"github.com/tranche-dev/tranche/test/simulator/nvdriver"
)

// The GPUs of nvidiaMachine.
const first, second = "0000:1b:00.0", "0000:43:00.0"

func at(address string) *v1beta1.GPUSelector {
	return &v1beta1.GPUSelector{PCIBusIDs: []string{address}}
}

func static(parts ...v1beta1.StaticPartition) *v1beta1.MIG {
	return &v1beta1.MIG{Mode: v1beta1.MIGStatic, Partitions: parts}
}

var (
	disabled = &v1beta1.MIG{Mode: v1beta1.MIGDisabled}
	keep     = v1beta1.Rule{Unchanged: true}
)

// A switch changes nothing on a GPU that the profile leaves unchanged, also where somebody
// changed it by hand. After a reboot the GPU has its partitions again.
func TestUnchangedOnSimulatedMIG(t *testing.T) {
	for _, model := range []string{"A100-40GB", "H100-80GB"} {
		t.Run(model, func(t *testing.T) {
			m := nvidiaMachine(t, model, "  migMode: disabled\n")
			m.follow(ruleWish("two", v1beta1.Rule{GPUs: at(first), MIG: static(part("2g", 2))}, v1beta1.Rule{MIG: static(part("3g", 1), part("1g", 1))}))
			layout := m.node.Layout(second)
			before := m.state()[1]
			c := claimFor("a", layout.Static[0])
			held, _, err := m.manager.Prepare(t.Context(), c)
			require.NoError(t, err)

			wish := ruleWish("first", v1beta1.Rule{GPUs: at(first), MIG: disabled}, keep)
			task := m.node.Plan(t.Context(), wish)
			require.Equal(t, v1beta1.TaskPlanned, task.Phase, task.Message)
			require.Len(t, task.Changes, 1)
			assert.Equal(t, gpu.NameOf(first), task.Changes[0].GPU)
			assert.Empty(t, task.ShrinkingGPUs)
			m.follow(wish)
			assert.Equal(t, []string{"off", before}, m.state())
			assert.Equal(t, layout, m.node.Layout(second))

			// Drift of the hardware is not the switch's to repair.
			require.NoError(t, m.manager.Unprepare(t.Context(), held.Claim))
			require.NoError(t, m.nvidia.Destroy(t.Context(), layout.Static[0]))
			drifted := m.state()[1]
			again := ruleWish("again", v1beta1.Rule{GPUs: at(first), MIG: &v1beta1.MIG{Mode: v1beta1.MIGNoPartitions}}, keep)
			task = m.node.Plan(t.Context(), again)
			require.Len(t, task.Changes, 1)
			assert.Equal(t, "MIG mode on", task.Changes[0].Description)
			require.Equal(t, v1beta1.TaskDone, m.node.Apply(t.Context(), again, false).Phase)
			assert.Equal(t, []string{"on", drifted}, m.state())

			require.NoError(t, nvdriver.Reboot(m.root))
			m.restart()
			require.NoError(t, m.node.Restore(t.Context()))
			assert.Equal(t, []string{"on", before}, m.state())
			m.follows(again)

			// All is unchanged, and so is what claims can have.
			m.follow(ruleWish("all", keep))
			assert.Equal(t, []string{"on", before}, m.state())
			assert.Equal(t, layout, m.node.Layout(second))
			assert.Equal(t, profile.PartitioningStatic, m.node.Layout(first).Partitioning)
			assert.False(t, m.node.Layout(first).Offers(gpu.Placement{Type: gpu.TypeGPU}))
		})
	}
}

// A node without a profile, and one whose file was lost, leave GPUs as they are by default.
func TestUnchangedWithoutProfile(t *testing.T) {
	m := nvidiaMachine(t, "A100-40GB", "  migMode: disabled\n")
	m.follow(ruleWish("all", keep))
	assert.Equal(t, []string{"off", "off"}, m.state())
	assert.Equal(t, profile.Layout{}, m.node.Layout(first))
	i := m.gpus()[0]
	require.NoError(t, m.nvidia.SetMIG(t.Context(), first, true, false))
	m.restart()
	require.NoError(t, m.node.Restore(t.Context()))
	m.follow(ruleWish("more", v1beta1.Rule{GPUs: at(second), MIG: disabled}, keep))
	assert.Equal(t, []string{"on", "off"}, m.state(), i.Name())
}

// A GPU that appears after a restart has the defaults, and nothing is changed on it.
func TestUnchangedNewGPU(t *testing.T) {
	m := nvidiaMachine(t, "H100-80GB", "")
	m.node.GPUs = func() []gpu.GPU { return m.gpus()[:1] }
	m.follow(ruleWish("static", v1beta1.Rule{MIG: static(part("3g", 1))}))
	wish := ruleWish("all", keep)
	m.follow(wish)
	before := m.state()
	layout := m.node.Layout(first)
	m.restart()
	require.NoError(t, m.node.Restore(t.Context()))
	m.follows(wish)
	assert.Equal(t, before, m.state())
	assert.Equal(t, layout, m.node.Layout(first))
	assert.Equal(t, profile.Layout{}, m.node.Layout(second))
	m.follow(ruleWish("another", v1beta1.Rule{GPUs: at(second), MIG: static(part("2g", 1))}, keep))
	assert.Equal(t, before[0], m.state()[0])
}

// AMD GPUs keep their compute mode. The memory mode of a node is one, so nothing changes it.
func TestUnchangedOnSimulatedAMD(t *testing.T) {
	m := amdMachine(t, "mi300x8")
	gpus := m.gpus()
	kept := at(gpus[1].PCIAddress)
	m.follow(amdWish("cpx-nps4", "CPX", "NPS4"))
	wish := ruleWish("qpx", v1beta1.Rule{GPUs: kept, Unchanged: true}, v1beta1.Rule{XCP: &v1beta1.XCP{ComputePartition: "QPX", MemoryPartition: "NPS4"}})
	task := m.node.Plan(t.Context(), wish)
	require.Len(t, task.Changes, 1, task.Message)
	m.follow(wish)
	assert.Equal(t, []string{"QPX NPS4", "CPX NPS4"}, m.state())

	task = m.node.Plan(t.Context(), ruleWish("spx", v1beta1.Rule{GPUs: kept, Unchanged: true}, v1beta1.Rule{XCP: &v1beta1.XCP{ComputePartition: "SPX", MemoryPartition: "NPS1"}}))
	assert.Equal(t, v1beta1.TaskRefused, task.Phase)
	assert.Equal(t, names.ReasonProfileDoesNotFit, task.Reason)
	assert.Contains(t, task.Message, "another rule leaves GPUs unchanged, which are in NPS4: all AMD GPUs of a node share the memory mode")
	m.follow(ruleWish("index", v1beta1.Rule{GPUs: &v1beta1.GPUSelector{Indexes: []int32{1}}, XCP: &v1beta1.XCP{ComputePartition: "QPX"}}, keep))
	assert.Equal(t, []string{"QPX NPS4", "QPX NPS4"}, m.state())
}
