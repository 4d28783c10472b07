package publish_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware/amd"
	"github.com/tranche-dev/tranche/pkg/publish"
)

// TestEveryAMDPieceIsPublished: the devices of a GPU are the pieces that its
// hardware knows, no more and no fewer, and what they say of themselves is true.
func TestEveryAMDPieceIsPublished(t *testing.T) {
	for _, m := range amdMachines {
		gpus := m.gpus(t, 1)
		g, pieces := &gpus[0], m.pieces(gpus[0].Name())
		devices := devicesOf(t, slicesOf(t, gpus), g.Name())
		require.Len(t, devices, len(pieces), m.name())
		for _, d := range devices {
			p, ok := pieces[d.Name]
			require.True(t, ok, "%s of %s", d.Name, m.name())
			want := map[resourceapi.QualifiedName]string{
				names.AttributeType: "xcp", names.AttributeVendor: "amd",
				names.AttributeProfile: p.mode, names.AttributeMemoryPartition: m.memoryMode,
				names.AttributeParentUUID: g.UUID, names.AttributeUUID: "",
			}
			if p.mode == "spx" {
				want[names.AttributeType], want[names.AttributeProfile] = "gpu", ""
				want[names.AttributeParentUUID], want[names.AttributeUUID] = "", g.UUID
				require.True(t, *d.Attributes[names.AttributePartitionable].BoolValue)
				require.NotContains(t, d.Attributes, resourceapi.QualifiedName(names.AttributePartitionIndex))
			} else {
				require.EqualValues(t, p.index, *d.Attributes[names.AttributePartitionIndex].IntValue, d.Name)
			}
			for name, text := range want {
				if text == "" {
					require.NotContains(t, d.Attributes, name, d.Name)
					continue
				}
				require.Equal(t, text, *d.Attributes[name].StringValue, "%s of %s", name, d.Name)
			}
		}
	}
}

// TestAMDGPUThatCannotBeCut has neither modes nor locks.
func TestAMDGPUThatCannotBeCut(t *testing.T) {
	gpus := amdMachine{model: "MI210"}.gpus(t, 1)
	published := slicesOf(t, gpus)
	require.Len(t, published[0].Spec.SharedCounters, 1)
	assert.Len(t, published[0].Spec.SharedCounters[0].Counters, 1)
	devices := devicesOf(t, published, gpus[0].Name())
	require.Len(t, devices, 1)
	for _, name := range []resourceapi.QualifiedName{names.AttributePartitionable, names.AttributeMemoryPartition, names.AttributeProfile} {
		assert.NotContains(t, devices[0].Attributes, name)
	}
	c := clusterOf(t, gpus)
	assert.Nil(t, c.one(classOfMode("spx")), "it is in no mode")
	assert.Len(t, c.fill(wholeGPU), 1)
}

// TestWholeOnlyOfAMDGPUs: without counters nothing would keep modes apart. Under
// a memory mode that has no whole GPU, nothing is left.
func TestWholeOnlyOfAMDGPUs(t *testing.T) {
	for _, m := range amdMachines {
		gpus := m.gpus(t, 2)
		for i := range gpus {
			gpus[i].WholeOnly = true
		}
		published := slicesOf(t, gpus)
		require.Len(t, published, 3, "the slices stay")
		for _, slice := range published {
			assert.Empty(t, slice.Spec.SharedCounters)
			assert.LessOrEqual(t, len(withoutMonitors(slice.Spec.Devices)), m.modes["spx"])
		}
		c := clusterOf(t, gpus)
		assert.Nil(t, c.one(anyPartition), m.name())
		assert.Equal(t, ofMode(gpus, "spx", m.modes["spx"]), c.fill(wholeGPU), m.name())
	}
}

// switchTo has the driver make a partition of a mode, which switches the GPU.
func switchTo(t *testing.T, driver *amd.Driver, g publish.GPU, mode string) {
	t.Helper()
	for _, p := range g.Placements {
		if p.Profile != mode {
			continue
		}
		part, err := driver.Create(t.Context(), p)
		require.NoError(t, err)
		require.True(t, part.Is(p) || p.Type == gpu.TypeGPU)
		live, err := driver.Live(t.Context(), g.PCIAddress)
		require.NoError(t, err)
		if p.Type == gpu.TypeGPU {
			require.Empty(t, live)
			return
		}
		require.NotEmpty(t, live)
		require.Equal(t, mode, live[0].Profile, "the GPU was not switched")
		return
	}
	require.Fail(t, "no such mode", mode)
}
