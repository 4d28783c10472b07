package node

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/api/v1alpha1"
	"github.com/tranche-dev/tranche/test/nodetest"
	"github.com/tranche-dev/tranche/test/simulator/amdgpu"
)

// Claims that the hardware cannot prepare are reported until they can be, or go; those that ask
// for something wrong, or find a process in the way, are not.
func TestClaimsThatTheHardwareCannotPrepareAreReported(t *testing.T) {
	s := steerAMD(t)
	k, _ := s.start()
	assert.Equal(t, "SPX NPS1", s.modes())
	require.NotEmpty(t, k.refused(nodetest.Allocate(t, s.api, "wrong", amdCard0+"-tpx-1")))
	s.amdFaults(amdgpu.Faults{Writes: []amdgpu.WriteFault{{GPU: amdAddress, File: computeFile, Process: &amdgpu.Process{PID: 77, Name: "rocminfo", GPUs: []string{amdAddress}}}}})
	require.NotEmpty(t, k.refused(nodetest.Allocate(t, s.api, "busy", cpx3)))
	_ = amdgpu.EndProcess(s.simulated.Root, 77)

	s.amdFaults(amdgpu.Faults{Nodes: []amdgpu.NodeFault{{GPU: amdAddress, Partitions: []int{3}, Missing: "kfd"}}})
	c, gone := nodetest.Allocate(t, s.api, "a", cpx3), nodetest.Allocate(t, s.api, "gone", cpx3)
	require.NotEmpty(t, k.refused(c))
	require.NotEmpty(t, k.refused(gone))
	r := s.await("the claims are not reported", func(r *v1alpha1.NodeReport) bool { return len(r.Unprepared) == 2 })
	assert.Equal(t, "claim-a", r.Unprepared[0].Name)
	assert.Contains(t, r.Unprepared[0].Message, "KFD has only 7 of the 8 partitions")
	since := r.Unprepared[0].Since
	require.NotEmpty(t, k.refused(c))
	require.Empty(t, k.unprepare(gone))
	r = s.await("a claim that is gone is reported", func(r *v1alpha1.NodeReport) bool { return len(r.Unprepared) == 1 })
	assert.True(t, since.Equal(&r.Unprepared[0].Since))

	s.amdFaults(amdgpu.Faults{})
	require.Eventually(t, func() bool { return k.prepare(c)["a"].Error == "" }, nodetest.Patience, nodetest.Tick)
	s.await("a claim that works is reported", func(r *v1alpha1.NodeReport) bool { return len(r.Unprepared) == 0 })
	require.Empty(t, k.unprepare(c))
}

// An unhealthy GPU is reported with the time at which it was found, also by the next plugin.
func TestUnhealthyGPUsAreReported(t *testing.T) {
	s := steerAMD(t)
	_, stop := s.start()
	assert.Equal(t, "SPX NPS1", s.modes())
	s.amdFaults(amdgpu.Faults{RAS: []amdgpu.RAS{{GPU: amdAddress, Uncorrectable: 2}}})
	sick := func(r *v1alpha1.NodeReport) bool { return len(r.Unhealthy) == 1 && r.Unhealthy[0].Name == amdCard0 }
	since := s.await("the GPU is not reported", sick).Unhealthy[0].Since
	stop()
	s.start()
	s.await("the restart is not reported", func(r *v1alpha1.NodeReport) bool { return r.GPUs[0].Problem != "" })
	assert.True(t, since.Equal(&s.await("the GPU is not reported", sick).Unhealthy[0].Since))
	s.amdFaults(amdgpu.Faults{})
	s.await("a healthy GPU is reported", func(r *v1alpha1.NodeReport) bool { return len(r.Unhealthy) == 0 })
}
