package amd_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware/xcp"
	"github.com/tranche-dev/tranche/test/simulator/amdgpu"
)

func (m *machine) modes(pciAddress string) gpu.Modes {
	m.t.Helper()
	modes, err := m.Modes(m.t.Context(), pciAddress)
	require.NoError(m.t, err)
	return modes
}

func TestModesOfAGPU(t *testing.T) {
	m := simulated(t, "mi300x8")
	want := gpu.Modes{
		Compute: "SPX", Computes: []string{"SPX", "DPX", "QPX", "CPX"},
		Memory: "NPS1", Memories: []string{"NPS1", "NPS2", "NPS4"},
		Legal: map[string][]string{"NPS1": {"SPX", "DPX", "QPX", "CPX"}, "NPS2": {"DPX"}, "NPS4": {"QPX", "CPX"}},
	}
	assert.Equal(t, want, m.modes(first))

	m.faults(amdgpu.Faults{MemoryModes: []amdgpu.MemoryModeFault{{GPU: "*", Mode: xcp.NPS4}}})
	want.Compute, want.Computes, want.Memory = "CPX", []string{"QPX", "CPX"}, "NPS4"
	assert.Equal(t, want, m.modes(first), "somebody else changed the memory mode")
}

// A GPU without its driver is not one that cannot be cut.
func TestModesOfAGoneGPU(t *testing.T) {
	m := simulated(t, "mi300x8")
	m.faults(amdgpu.Faults{Lost: []string{first}})
	_, err := m.Modes(m.t.Context(), first)
	require.ErrorContains(t, err, "gone from the PCI bus, or amdgpu has let go of it")
}

// What a GPU says of its pairs of modes is the simulated kernel's rule.
func TestModesOfEveryModel(t *testing.T) {
	for _, name := range inventories {
		m := simulated(t, name)
		for i, g := range m.gpus() {
			model := m.inventory.AMD[i].Model
			got := m.modes(g.PCIAddress)
			assert.Equal(t, fmt.Sprint(model.MemoryModes), fmt.Sprint(got.Memories), name)
			for _, memory := range model.MemoryModes {
				assert.Equal(t, xcp.Names(xcp.Legal(model.Chip(false), memory)), got.Legal[string(memory)], "%s, GPU %d, %s", name, i, memory)
			}
			assert.Equal(t, got.Legal[got.Memory], got.Computes, name)
			assert.Equal(t, got.Legal, g.Modes, name)
		}
	}
}

func TestSetComputePartition(t *testing.T) {
	m := simulated(t, "mi300x8")
	for _, mode := range []string{"CPX", "QPX", "DPX", "SPX", "SPX"} {
		require.NoError(t, m.SetComputePartition(t.Context(), first, mode))
		assert.Equal(t, mode, m.modes(first).Compute)
	}
	assert.Equal(t, []string{"CPX", "QPX", "DPX", "SPX"}, m.switches(), "a GPU in the mode is left alone")
	for mode, want := range map[string]string{
		"cpx": `"cpx" is no compute mode`, "": `"" is no compute mode`, "SPX, CPX": "is no compute mode", "NPS4": `"NPS4" is no compute mode`,
		"TPX": "cannot be put into mode TPX: in memory mode NPS1 it has SPX, DPX, QPX, CPX",
	} {
		assert.ErrorContains(t, m.SetComputePartition(t.Context(), first, mode), want, mode)
	}
	assert.ErrorContains(t, m.SetComputePartition(t.Context(), "0000:99:00.0", "CPX"), "GPU 0000:99:00.0 is gone")
	assert.Empty(t, m.switches())
}

// Every partition must be there, not only one.
func TestSetComputePartitionWithPartitionsMissing(t *testing.T) {
	for missing, want := range map[string]string{
		"kfd":    "KFD has only 7 of the 8 partitions of mode CPX, and not that with index 7",
		"render": "there is no device node /dev/dri/renderD135",
	} {
		m := simulated(t, "mi300x8")
		m.faults(amdgpu.Faults{Nodes: []amdgpu.NodeFault{{GPU: first, Partitions: []int{7}, Missing: missing}}})
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		assert.ErrorContains(t, m.SetComputePartition(ctx, first, "CPX"), want)
		cancel()
		assert.Equal(t, "CPX", m.modes(first).Compute)
		m.faults(amdgpu.Faults{})
		assert.NoError(t, m.SetComputePartition(t.Context(), first, "CPX"))
	}
}

func TestSetComputePartitionWaitsForLateDeviceNodes(t *testing.T) {
	m := simulated(t, "mi300x8")
	m.faults(amdgpu.Faults{Nodes: []amdgpu.NodeFault{{GPU: first, Partitions: []int{7}, Missing: "render", Late: metav1.Duration{Duration: 50 * time.Millisecond}}}})
	require.NoError(t, m.SetComputePartition(t.Context(), first, "CPX"))
	assert.Equal(t, []string{"/dev/kfd", "/dev/dri/renderD135"}, m.nodes(xcpOf(first, "cpx", 7)))
}
