package publish_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/publish"
	"github.com/tranche-dev/tranche/test/allocator"
)

// ofMode are the devices of one mode of all GPUs, in order.
func ofMode(gpus []publish.GPU, mode string, n int) []string {
	var all []string
	for _, g := range gpus {
		for i := range n {
			all = append(all, amdPiece{g.Name(), mode, i}.device())
		}
	}
	return all
}

// TestPackingOfAMDGPUs is the day of a node with 8 × MI300X: every fill is
// exact.
func TestPackingOfAMDGPUs(t *testing.T) {
	gpus := gpusOf(t, builtIn(t, "mi300x8"))
	c := clusterOf(t, gpus)
	assert.Equal(t, ofMode(gpus, "cpx", 8), c.fill(classOfMode("cpx")), "64, GPU after GPU, and a 65th waits")
	assert.Nil(t, c.one(wholeGPU))
	assert.Nil(t, c.one(anyPartition))

	c.scheduler.ReleaseAll()
	small := c.one(classOfMode("cpx"))
	require.NotNil(t, small)
	assert.Equal(t, ofMode(gpus[1:], "dpx", 2), c.fill(classOfMode("dpx")), "14 on the seven other GPUs, and a 15th waits")
	c.scheduler.Release(small)
	assert.Equal(t, ofMode(gpus[:1], "dpx", 2), c.fill(classOfMode("dpx")), "the GPU is free for another mode")

	for class, want := range map[string][]string{
		classOfMode("qpx"):    ofMode(gpus, "qpx", 4),
		classOfMode("spx"):    ofMode(gpus, "spx", 1),
		"gpu-amd.tranche.dev": ofMode(gpus, "spx", 1),
		wholeGPU:              ofMode(gpus, "spx", 1),
		classOfMode("tpx"):    nil,
		anyMIG:                nil,
	} {
		c.scheduler.ReleaseAll()
		assert.Equal(t, want, c.fill(class), class)
	}
}

// TestAnyPartitionOfAMDGPUs: who asks for no mode gets the smallest partition of
// the first GPU that has room, and never a whole GPU.
func TestAnyPartitionOfAMDGPUs(t *testing.T) {
	for _, m := range amdMachines {
		finest, n := "", 0
		for mode, count := range m.modes {
			if count > n {
				finest, n = mode, count
			}
		}
		gpus := m.gpus(t, 2)
		for _, class := range []string{anyPartition, "gpu-xcp.tranche.dev"} {
			assert.Equal(t, ofMode(gpus, finest, n), clusterOf(t, gpus).fill(class), "%s on %s", class, m.name())
		}
		assert.Len(t, clusterOf(t, gpus).fill(wholeGPU), 2*m.modes["spx"], m.name())
	}
}

// TestAllOfOneGPU is the pod with eight containers: all partitions of a GPU in
// one claim, which is served as long as any GPU has all of them.
func TestAllOfOneGPU(t *testing.T) {
	for _, attribute := range ofOneGPU {
		gpus := gpusOf(t, builtIn(t, "mi300x8"))
		c := clusterOf(t, gpus)
		eight := func() *allocator.Grant {
			claim := allocator.Together(allocator.Claim("claim", allocator.Request("device", classOfMode("cpx"), 8)), attribute)
			grant, err := c.scheduler.Allocate(t.Context(), node, claim)
			require.NoError(t, err)
			return grant
		}
		require.NotNil(t, c.one(classOfMode("cpx")))
		for i := range gpus[1:] {
			grant := eight()
			require.NotNil(t, grant)
			assert.ElementsMatch(t, ofMode(gpus[i+1:i+2], "cpx", 8), grant.Devices())
		}
		assert.Nil(t, eight(), "seven are left on the first GPU")
		assert.Len(t, c.fill(anyPartition), 7)
	}
}

// TestBothVendors: on a machine with GPUs of both, each class finds its own, and
// who asks for memory alone gets the smallest partition of either that has it.
func TestBothVendors(t *testing.T) {
	gpus := gpusOf(t, builtIn(t, "h100x2-mi300x2"))
	h100, mi300x := []publish.GPU{gpus[0], gpus[2]}, []publish.GPU{gpus[1], gpus[3]}
	c := clusterOf(t, gpus)
	assert.Equal(t, ofMode(gpus, "spx", 1), c.fill(wholeGPU))
	c.scheduler.ReleaseAll()
	assert.Equal(t, ofMode(mi300x, "spx", 1), c.fill("gpu-amd.tranche.dev"))
	assert.Equal(t, ofMode(h100, "spx", 1), c.fill("gpu-nvidia.tranche.dev"))

	c.scheduler.ReleaseAll()
	got := c.fill(anyPartition)
	assert.Len(t, got, 2*7+2*8, "partitions only, no whole GPU")
	for i, g := range h100 {
		assert.Equal(t, fmt.Sprintf("%s-mig-1g-10gb-6", g.Name()), got[15*i])
		assert.Equal(t, ofMode(mi300x[i:i+1], "cpx", 8), got[15*i+7:15*i+15])
	}

	c.scheduler.ReleaseAll()
	ask := func() *allocator.Grant {
		request := allocator.Request("device", anyPartition, 1)
		request.Exactly.Selectors = []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{
			Expression: `device.capacity["gpu.tranche.dev"].memory.compareTo(quantity("16Gi")) >= 0`,
		}}}
		return c.ask(request)
	}
	var large []string
	for grant := ask(); grant != nil; grant = ask() {
		large = append(large, grant.Devices()...)
	}
	assert.Len(t, large, 2*4+2*8)
	assert.Equal(t, h100[0].Name()+"-mig-1g-20gb-6", large[0])
	assert.Equal(t, ofMode(mi300x[:1], "cpx", 8), large[4:12])
}

// TestTaintedMode: while something keeps a GPU from switching, the devices that
// need the switch are tainted, and claims go to the live mode or to other GPUs.
func TestTaintedMode(t *testing.T) {
	gpus := gpusOf(t, builtIn(t, "mi300x8"))[:2]
	busy := []resourceapi.DeviceTaint{{Key: names.TaintBusy, Effect: resourceapi.DeviceTaintEffectNoSchedule}}
	gpus[0].DeviceTaints = map[string][]resourceapi.DeviceTaint{}
	for _, p := range gpus[0].Placements {
		if p.Profile != "qpx" {
			gpus[0].DeviceTaints[p.Name()] = busy
		}
	}
	c := clusterOf(t, gpus)
	assert.Equal(t, ofMode(gpus[1:], "cpx", 8), c.fill(classOfMode("cpx")))
	assert.Equal(t, ofMode(gpus[:1], "qpx", 4), c.fill(anyPartition))
	c.scheduler.ReleaseAll()
	assert.Equal(t, ofMode(gpus[1:], "spx", 1), c.fill(wholeGPU))

	gpus[0].DeviceTaints = nil
	c.scheduler.Publish(slicesOf(t, gpus))
	assert.Equal(t, ofMode(gpus[:1], "cpx", 8), c.fill(classOfMode("cpx")))
}
