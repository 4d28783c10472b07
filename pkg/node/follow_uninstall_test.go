package node

import (
	"sync/atomic"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1alpha1"
	"github.com/tranche-dev/tranche/test/nodetest"
	"github.com/tranche-dev/tranche/test/simulator/nvdriver"
)

// While Tranche is uninstalled, a GPUNode that was taken away does not come back; it
// does if the plugin goes back to work.
func TestGPUNodeWhileUninstalling(t *testing.T) {
	s := steer(newUninstalled(t))
	var uninstalling, meanwhile atomic.Bool
	s.nodes.PrependReactor("create", "gpunodes", func(clienttesting.Action) (bool, runtime.Object, error) {
		if uninstalling.Load() {
			meanwhile.Store(true)
		}
		return false, nil, nil
	})
	s.start()
	s.await("no report", func(r *v1alpha1.NodeReport) bool { return r.Count == 2 })
	order(t, s.api, "uninstalling", "false", "1")
	awaitNoSlices(t, s.api)
	uninstalling.Store(true)
	require.NoError(t, s.nodes.Tracker.Delete(v1alpha1.GroupVersion.WithResource("gpunodes"), "", nodetest.NodeName))
	assert.False(t, meanwhile.Load())
	uninstalling.Store(false)
	order(t, s.api, "cancelled", "false", "2")
	s.await("it does not come back", func(r *v1alpha1.NodeReport) bool { return r.Count == 2 })
}

// What a profile has made goes before the GPUs are withdrawn; who uninstalls and does
// not find that possible after all gets it again.
func TestStaticProfileWhileUninstalling(t *testing.T) {
	s := steer(newUninstalled(t))
	k, _ := s.start()
	s.await("no report", func(r *v1alpha1.NodeReport) bool { return r.Count == 2 })
	sevens := snapshot(t, "all-1g.10gb", "[{mig: {mode: Static, partitions: [{profile: 1g.10gb, count: 7}]}}]")
	task := s.ask(v1alpha1.Applying, nothing, sevens)
	require.Equal(t, v1alpha1.TaskDone, task.Phase, task.Message)
	require.Len(t, s.partitions(), 14)
	s.await("not applied", func(r *v1alpha1.NodeReport) bool { return r.Applied == sevens.Hash })

	order(t, s.api, "uninstalling", "false", "1")
	awaitNoSlices(t, s.api)
	assert.Empty(t, s.partitions())
	order(t, s.api, "cancelled", "false", "2")
	s.await("the controller is not told", func(r *v1alpha1.NodeReport) bool { return r.Applied == "" })
	task = s.ask(v1alpha1.Applying, sevens, sevens)
	require.Equal(t, v1alpha1.TaskDone, task.Phase, task.Message)
	require.Len(t, s.partitions(), 14)
	require.Eventually(t, func() bool { return len(devicesOn(t, s.machine, card0)) == 7 }, nodetest.Patience, nodetest.Tick, "they are not published again")

	// By force, what a claim holds stays, and goes with it.
	a := nodetest.Allocate(t, s.api, "a", small0)
	k.mustPrepare(a)
	order(t, s.api, "uninstalling", "false", "3")
	nodetest.AwaitEvent(t, s.api, "Uninstalling", "withdrawn")
	assert.Len(t, s.partitions(), 14, "nothing is removed while a claim holds something")
	order(t, s.api, "uninstalling", "true", "4")
	awaitNoSlices(t, s.api)
	assert.Equal(t, []string{small0}, s.partitions())
	require.Empty(t, k.unprepare(a))
	assert.Empty(t, s.partitions())
}

// A partition that a process keeps stands in the way, unless force is set.
func TestStaticPartitionInUseWhileUninstalling(t *testing.T) {
	s := steer(newUninstalled(t))
	s.start()
	s.await("no report", func(r *v1alpha1.NodeReport) bool { return r.Count == 2 })
	one := snapshot(t, "one", "[{mig: {mode: Static, partitions: [{profile: 1g.10gb, count: 1}]}}]")
	task := s.ask(v1alpha1.Applying, nothing, one)
	require.Equal(t, v1alpha1.TaskDone, task.Phase, task.Message)
	require.Len(t, s.partitions(), 2)
	inUse := nvdriver.Faults{Calls: []nvdriver.CallFault{{Call: "GpuInstanceDestroy", GPU: "*", Error: nvdriver.Return(nvml.ERROR_IN_USE)}}}
	require.NoError(t, nvdriver.SetFaults(s.simulated.Root, inUse))
	order(t, s.api, "uninstalling", "false", "1")
	nodetest.AwaitEvent(t, s.api, "Uninstalling", "withdrawn")
	assert.Len(t, nodetest.SlicesOf(t, s.api, names.DriverName), slicesOfTwoGPUs)
	require.NoError(t, nvdriver.SetFaults(s.simulated.Root, nvdriver.Faults{}))
	awaitNoSlices(t, s.api)
	assert.Empty(t, s.partitions())

	order(t, s.api, "cancelled", "false", "2")
	task = s.ask(v1alpha1.Applying, one, one)
	require.Equal(t, v1alpha1.TaskDone, task.Phase, task.Message)
	require.NoError(t, nvdriver.SetFaults(s.simulated.Root, inUse))
	order(t, s.api, "uninstalling", "true", "3")
	awaitNoSlices(t, s.api)
	assert.Len(t, s.partitions(), 2)
}
