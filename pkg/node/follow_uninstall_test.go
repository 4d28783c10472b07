package node

import (
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/test/nodetest"
	"github.com/tranche-dev/tranche/test/simulator/nvdriver"
)

// What a profile has made goes with the plugin. What a claim holds stays, and goes with it.
func TestStaticProfileIsUninstalled(t *testing.T) {
	s := steer(newUninstalled(t))
	k, stop := s.start()
	s.await("no report", func(r *v1beta1.NodeReport) bool { return r.GPUCount == 2 })
	sevens := snapshot(t, "all-1g.10gb", "[{mig: {mode: Static, partitions: [{profile: 1g.10gb, count: 7}]}}]")
	task := s.ask(v1beta1.Applying, nothing, sevens)
	require.Equal(t, v1beta1.TaskDone, task.Phase, task.Message)
	require.Len(t, s.partitions(), 14)
	a := nodetest.Allocate(t, s.api, "a", small0)
	k.mustPrepare(a)
	setDaemonSet(t, s.api, true)
	stop()
	assert.Equal(t, []string{small0}, s.partitions())
	assert.Empty(t, nodetest.SlicesOf(t, s.api, names.DriverName))

	setDaemonSet(t, s.api, false)
	k, stop = s.start()
	require.Empty(t, k.unprepare(a))
	assert.Empty(t, s.partitions())
	setDaemonSet(t, s.api, true)
	stop()
	assert.NoDirExists(t, s.config.DataDir())
}

// A partition that a process uses for a while stands in the way.
func TestStaticPartitionInUseIsUninstalled(t *testing.T) {
	s := steer(newUninstalled(t))
	_, stop := s.start()
	s.await("no report", func(r *v1beta1.NodeReport) bool { return r.GPUCount == 2 })
	one := snapshot(t, "one", "[{mig: {mode: Static, partitions: [{profile: 1g.10gb, count: 1}]}}]")
	task := s.ask(v1beta1.Applying, nothing, one)
	require.Equal(t, v1beta1.TaskDone, task.Phase, task.Message)
	require.Len(t, s.partitions(), 2)
	inUse := nvdriver.Faults{Calls: []nvdriver.CallFault{{Call: "GpuInstanceDestroy", GPU: "*", Error: nvdriver.Return(nvml.ERROR_IN_USE)}}}
	require.NoError(t, nvdriver.SetFaults(s.simulated.Root, inUse))
	setDaemonSet(t, s.api, true)
	ended := make(chan struct{})
	go func() { defer close(ended); stop() }()
	select {
	case <-ended:
		require.Fail(t, "the plugin has ended although a partition is in use")
	case <-time.After(2 * retireInterval):
	}
	assert.NotEmpty(t, nodetest.SlicesOf(t, s.api, names.DriverName))
	require.NoError(t, nvdriver.SetFaults(s.simulated.Root, nvdriver.Faults{}))
	<-ended
	assert.Empty(t, s.partitions())
	assert.Empty(t, nodetest.SlicesOf(t, s.api, names.DriverName))
}
