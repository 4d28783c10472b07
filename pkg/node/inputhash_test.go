package node

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/api/v1alpha1"
	"github.com/tranche-dev/tranche/test/nodetest"
)

// steadyBasis checks that a claim, and what it changes on its GPU, does not change the
// basis of plans.
func (s *steered) steadyBasis(k *kubelet, device, modeWith string) string {
	t := s.t
	s.await("no report", func(r *v1alpha1.NodeReport) bool { return r.Count == 2 })
	s.ask(v1alpha1.Planning, nothing, snapshot(t, "dynamic", "[{}]")) // reports come at once now
	before := s.await("no basis", func(r *v1alpha1.NodeReport) bool { return r.InputHash != "" })
	assert.NotEqual(t, modeWith, before.GPUs[0].Mode)
	a := nodetest.Allocate(t, s.api, "basis", device)
	k.mustPrepare(a)
	held := s.await("the claim changes no mode", func(r *v1alpha1.NodeReport) bool { return r.Held == 1 && r.GPUs[0].Mode == modeWith })
	assert.Equal(t, before.InputHash, held.InputHash)
	require.Empty(t, k.unprepare(a))
	return before.InputHash
}

func TestBasisOfNVIDIA(t *testing.T) {
	s := steer(newMachine(t, nodetest.NewAPI()))
	k, stop := s.start()
	basis := s.steadyBasis(k, small0, "MIG on")
	stop()
	_, stop = s.start()
	same := s.await("no report", func(r *v1alpha1.NodeReport) bool { return r.Held == 0 })
	assert.Equal(t, basis, same.InputHash, "a restart changes nothing")
	stop()
	s.config.MemoryModes, s.simulated.AMD.MemoryModes = true, true
	s.start()
	s.await("a setting of the plugin does not count", func(r *v1alpha1.NodeReport) bool { return r.InputHash != basis })
}

func TestBasisOfAMD(t *testing.T) {
	s := steerAMD(t)
	k, _ := s.start()
	basis := s.steadyBasis(k, cpx3, "CPX NPS1")
	task := s.ask(v1alpha1.Applying, nothing, snapshot(t, "cpx-nps4", cpxNPS4))
	require.Equal(t, v1alpha1.TaskDone, task.Phase, task.Message)
	s.await("the memory mode does not count", func(r *v1alpha1.NodeReport) bool { return r.InputHash != basis })
}
