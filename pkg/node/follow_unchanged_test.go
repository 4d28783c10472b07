package node

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/api/v1alpha1"
	"github.com/tranche-dev/tranche/test/nodetest"
)

// A GPU in MIG mode without partitions is offered to nobody. One that is unchanged has the
// devices that it had, also after a restart, and for a claim that holds one.
func TestEnabledBesideUnchanged(t *testing.T) {
	s := steer(newMachine(t, nodetest.NewAPI()))
	k, stop := s.start()
	s.await("no report", func(r *v1alpha1.NodeReport) bool { return r.Count == 2 })
	before := snapshot(t, "all-1g.10gb", "[{mig: {mode: Static, partitions: [{profile: 1g.10gb}]}}]")
	task := s.ask(v1alpha1.Applying, nothing, before)
	require.Equal(t, v1alpha1.TaskDone, task.Phase, task.Message)
	a := nodetest.Allocate(t, s.api, "a", small0)
	k.mustPrepare(a)

	enabled := snapshot(t, "enabled", "[{gpus: {indexes: [1]}, mig: {mode: Enabled}}, {unchanged: true}]")
	task = s.ask(v1alpha1.Planning, before, enabled)
	require.Equal(t, v1alpha1.TaskPlanned, task.Phase, task.Message)
	require.Len(t, task.Changes, 1)
	assert.Equal(t, card1, task.Changes[0].GPU)
	task = s.ask(v1alpha1.Applying, before, enabled)
	require.Equal(t, v1alpha1.TaskDone, task.Phase, task.Message)
	published := func() bool {
		return len(devicesOn(t, s.machine, card0)) == 7 && len(devicesOn(t, s.machine, card1)) == 0
	}
	require.Eventually(t, published, nodetest.Patience, nodetest.Tick, "other devices than those of the unchanged GPU are published")
	s.await("the mode is not reported", func(r *v1alpha1.NodeReport) bool {
		return len(r.GPUs) == 2 && r.GPUs[1].Mode == "MIG on" && r.GPUs[1].Problem == ""
	})
	stop()
	k, _ = s.start()
	require.Eventually(t, published, nodetest.Patience, nodetest.Tick, "a restart changes what is published")
	k.mustPrepare(a)
	require.Empty(t, k.unprepare(a))
	assert.Len(t, s.partitions(), 7)
}
