package node

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"

	"github.com/tranche-dev/tranche/test/nodetest"
	"github.com/tranche-dev/tranche/test/simulator/amdgpu"
)

// computeFile is what an AMD GPU is switched by.
const computeFile = "current_compute_partition"

// A partition that KFD does not have is fenced alone, as long as it is missing;
// its holder is told.
func TestMissingPartition(t *testing.T) {
	m := newAMDMachine(t, nodetest.NewAPI())
	k, _ := m.start()
	c := nodetest.Allocate(t, m.api, "a", cpx3)
	k.mustPrepare(c)
	awaitDevices(t, m.api, false, untainted)
	m.amdFaults(amdgpu.Faults{Nodes: []amdgpu.NodeFault{{GPU: amdAddress, Partitions: []int{3}, Missing: "kfd"}}})
	awaitDevices(t, m.api, false, func(d resourceapi.Device) bool { return untainted(d) == (d.Name != cpx3) })
	assert.Contains(t, nodetest.AwaitEvent(t, m.api, "PartitionMissing", "cpx-3"), "KFD has only 7 of the 8 partitions")
	b := nodetest.Allocate(t, m.api, "b", amdCard0+"-cpx-4")
	k.mustPrepare(b)
	require.Empty(t, k.unprepare(b))
	m.amdFaults(amdgpu.Faults{})
	awaitDevices(t, m.api, false, untainted)
	nodetest.AwaitEvent(t, m.api, "PartitionFound", "")
}

// What becomes wrong with an AMD GPU takes it out of service, tells who is on
// it, and is over when the GPU is healthy again.
func TestAMDHealth(t *testing.T) {
	for name, tt := range map[string]struct {
		faults amdgpu.Faults
		note   string
	}{
		"errors":   {amdgpu.Faults{RAS: []amdgpu.RAS{{GPU: amdAddress, Uncorrectable: 2}}}, "2 errors that could not be corrected"},
		"reset":    {amdgpu.Faults{Resetting: []string{amdAddress}}, "reset"},
		"lost GPU": {amdgpu.Faults{Lost: []string{amdAddress}}, amdCard0},
	} {
		t.Run(name, func(t *testing.T) {
			m := newAMDMachine(t, nodetest.NewAPI())
			k, _ := m.start()
			k.mustPrepare(nodetest.Allocate(t, m.api, "a", cpx3))
			awaitDevices(t, m.api, false, untainted)
			m.amdFaults(tt.faults)
			awaitDevices(t, m.api, false, func(d resourceapi.Device) bool { return untainted(d) == (onGPU(d) != amdAddress) })
			note := nodetest.AwaitEvent(t, m.api, "GPUUnhealthy", tt.note)
			assert.Contains(t, note, cpx3+" is held by claim team/claim-a, pod pod-a")
			m.amdFaults(amdgpu.Faults{})
			awaitDevices(t, m.api, false, untainted)
		})
	}
}

// The plugin dies while the kernel is at work on a switch, before it and after
// it took effect: nothing is allocated twice, and the next try works.
func TestPluginKilledDuringSwitch(t *testing.T) {
	for _, at := range []string{"before", "after"} {
		t.Run(map[string]string{"before": "in the write", "after": "between write and read-back"}[at], func(t *testing.T) {
			m := newAMDMachine(t, nodetest.NewAPI())
			_, stop := m.start() // the simulated machine is there for faults
			stop()
			c := nodetest.Allocate(t, m.api, "a", cpx3)
			kill := m.startChild(c)
			k := m.register()
			m.amdFaults(amdgpu.Faults{Writes: []amdgpu.WriteFault{{GPU: amdAddress, File: computeFile, Times: 1, Hang: at}}})
			answered := make(chan error, 1)
			go func() {
				_, err := k.dra.NodePrepareResources(context.Background(), &drapb.NodePrepareResourcesRequest{Claims: []*drapb.Claim{refTo(c)}})
				answered <- err
			}()
			m.awaitHangIn("amdgpu.json")
			took := map[string]string{"before": "SPX", "after": "CPX"}[at]
			require.Eventually(t, func() bool { return m.mode() == took }, nodetest.Patience, nodetest.Tick)
			kill()
			require.Error(t, <-answered)
			m.amdFaults(amdgpu.Faults{})
			require.Equal(t, took, m.mode())

			k, _ = m.start()
			assert.False(t, k.granted(nodetest.Allocate(t, m.api, "b", dpx0)), "claim a may have it")
			assert.Equal(t, []string{"gpu.tranche.dev/claim=" + cpx3 + "_a"}, k.mustPrepare(c), "the next try works")
			assert.Equal(t, "CPX", m.mode())
			require.Empty(t, k.unprepare(c))
			k.works(nodetest.Allocate(t, m.api, "d", dpx0))
		})
	}
}

// Somebody changes a GPU's mode under a claim.
func TestAMDModeChangedUnderAClaim(t *testing.T) {
	m := newAMDMachine(t, nodetest.NewAPI())
	k, _ := m.start()
	awaitDevices(t, m.api, false, untainted)
	c := nodetest.Allocate(t, m.api, "a", cpx3)
	k.mustPrepare(c)
	require.NoError(t, m.kernel().WriteFile("/sys/bus/pci/devices/"+amdAddress+"/current_compute_partition", []byte("SPX")))
	nodetest.AwaitEvent(t, m.api, "HeldDeviceGone", cpx3+": somebody other than Tranche has changed how the GPU is partitioned")
	require.Empty(t, k.unprepare(c))
	nodetest.AwaitEvent(t, m.api, "HeldDeviceReleased", cpx3)
	awaitDevices(t, m.api, false, untainted)
}
