package node

import (
	"os"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/node/inventory"
	"github.com/tranche-dev/tranche/pkg/node/publisher"
	"github.com/tranche-dev/tranche/test/clientfake"
	"github.com/tranche-dev/tranche/test/nodetest"
	"github.com/tranche-dev/tranche/test/simulator/nvdriver"
)

// other is a second plugin on the machine, as during a rolling update. It has a client
// of its own to the same objects, so that a test sees what it writes.
func (s *steered) other() (second *steered, writes *atomic.Int64) {
	m := *s.machine
	config := *s.config
	m.config = &config
	second, writes = steer(&m), &atomic.Int64{}
	second.written = s.written
	client := clientfake.New()
	client.Tracker = s.nodes.Tracker
	client.ReactionChain = []clienttesting.Reactor{&clienttesting.SimpleReactor{Verb: "*", Resource: "*", Reaction: clienttesting.ObjectReaction(s.nodes.Tracker)}}
	client.WatchReactionChain = s.nodes.WatchReactionChain
	second.nodes = client
	clientfake.React(&client.Fake, "patch", "gpunodes", second.applyReport)
	for _, verb := range []string{"create", "patch"} {
		clientfake.React(&client.Fake, verb, "gpunodes", func(clienttesting.Action) (bool, runtime.Object, error) {
			writes.Add(1)
			return false, nil, nil
		})
	}
	config.GPUNodes = client.GPUNodes()
	config.PodUID = "second"
	return second, writes
}

// During a rolling update the older plugin finishes what it changes, and only then the
// newer one touches the GPUs or the report: it does not put back what is about to
// change, and goes on where the older one ended.
func TestOnePluginFollows(t *testing.T) {
	s := steer(newMachine(t, nodetest.NewAPI()))
	s.config.PodUID = "first"
	_, stop := s.start()
	s.await("no report", func(r *v1beta1.NodeReport) bool { return r.GPUCount == 2 })
	sevens := snapshot(t, "all-1g.10gb", "[{mig: {mode: Static, partitions: [{profile: 1g.10gb, count: 7}]}}]")
	require.Equal(t, v1beta1.TaskDone, s.ask(v1beta1.Applying, nothing, sevens).Phase)

	second, writes := s.other()
	k, _ := second.start()
	require.Eventually(t, func() bool {
		return slices.ContainsFunc(second.nodes.Actions(), func(a clienttesting.Action) bool { return a.GetVerb() == "watch" })
	}, nodetest.Patience, nodetest.Tick, "the second does not watch the GPUNode")
	halves := snapshot(t, "halves", "[{mig: {mode: Static, partitions: [{profile: 3g.40gb, count: 2}]}}]")
	task := s.ask(v1beta1.Applying, sevens, halves)
	require.Equal(t, v1beta1.TaskDone, task.Phase, task.Message)
	assert.Len(t, s.partitions(), 4)

	// The newer one serves the kubelet, and the older one says so.
	a := nodetest.Allocate(t, s.api, "a", half0)
	require.Eventually(t, func() bool { return k.prepare(a)[string(a.UID)].Error == "" }, nodetest.Patience, nodetest.Tick, "it does not see what the older one has changed")
	s.await("what the newer one has prepared is not reported", func(r *v1beta1.NodeReport) bool { return r.ClaimCount == 1 && len(r.GPUs[0].HeldDevices) == 1 })
	require.Empty(t, k.unprepare(a))
	s.await("what the newer one has released is reported", func(r *v1beta1.NodeReport) bool { return r.ClaimCount == 0 })
	assert.Zero(t, writes.Load(), "two write how the node is")

	stop()
	second.last = s.last
	task = second.ask(v1beta1.RollingBack, sevens, halves)
	require.Equal(t, v1beta1.TaskDone, task.Phase, task.Message)
	assert.Len(t, s.partitions(), 14)
	assert.NotZero(t, writes.Load())
}

// What could not be put back after a reboot is tried again, although nobody asks for it.
func TestRestoredLater(t *testing.T) {
	s := steer(newMachine(t, nodetest.NewAPI()))
	s.config.restorePause = 100 * time.Millisecond
	_, stop := s.start()
	s.await("no report", func(r *v1beta1.NodeReport) bool { return r.GPUCount == 2 })
	sevens := snapshot(t, "all-1g.10gb", "[{mig: {mode: Static, partitions: [{profile: 1g.10gb, count: 7}]}}]")
	require.Equal(t, v1beta1.TaskDone, s.ask(v1beta1.Applying, nothing, sevens).Phase)
	stop()
	require.NoError(t, nvdriver.Reboot(s.simulated.Root))
	require.Empty(t, s.partitions())
	require.NoError(t, nvdriver.SetFaults(s.simulated.Root, nvdriver.Faults{Calls: []nvdriver.CallFault{{Call: "CreateGpuInstance", GPU: pci0, Error: nvdriver.Return(nvml.ERROR_UNKNOWN)}}}))
	s.start()
	report := s.await("it is not said", func(r *v1beta1.NodeReport) bool { return len(r.GPUs) == 2 && r.GPUs[0].Pending != "" })
	assert.Contains(t, report.GPUs[0].Pending, "the profile could not be restored, which is retried: create partition "+card0)
	assert.Empty(t, report.GPUs[1].Pending)
	require.NoError(t, nvdriver.SetFaults(s.simulated.Root, nvdriver.Faults{}))
	require.Eventually(t, func() bool { return len(s.partitions()) == 14 }, nodetest.Patience, nodetest.Tick, "nobody puts them back")
	s.await("it is said still", func(r *v1beta1.NodeReport) bool { return r.GPUs[0].Pending == "" })
}

// A GPUNode that somebody has deleted and created again gets the report, too.
func TestReportInAnotherGPUNode(t *testing.T) {
	s := steer(newMachine(t, nodetest.NewAPI()))
	s.start()
	s.await("no report", func(r *v1beta1.NodeReport) bool { return r.GPUCount == 2 })
	node, err := s.get()
	require.NoError(t, err)
	node.UID, node.Status = "another", v1beta1.GPUNodeStatus{}
	require.NoError(t, s.nodes.Tracker.Update(v1beta1.GroupVersion.WithResource("gpunodes"), node, ""))
	s.await("no report in the new one", func(r *v1beta1.NodeReport) bool { return r.GPUCount == 2 })
}

// While GPUs are changed, which may take minutes, who looks does not wait: it still
// looks after daemons.
func TestNobodyWaitsForAChange(t *testing.T) {
	m := &monitor{publisher: publisher.New(publisher.Config{GPUs: &inventory.GPUs{}})}
	m.looking.Lock()
	defer m.looking.Unlock()
	done := make(chan struct{})
	go func() { defer close(done); m.check(t.Context()) }()
	select {
	case <-done:
	case <-time.After(nodetest.Patience):
		t.Fatal("it waits")
	}
}

// A plugin whose node the controller has not looked at leaves GPUs shared as they are.
func TestSharingStaysUntilTheControllerDecides(t *testing.T) {
	m := newMachine(t, nodetest.NewAPI())
	m.profile("{sharing: {replicas: 4}}")
	_, stop := m.start()
	awaitReplicas(t, m.api, fraction0, 250)
	stop()
	require.NoError(t, os.Remove(m.config.profileFile()))

	s := steer(m)
	_, stop = s.start()
	s.await("no report", func(r *v1beta1.NodeReport) bool { return r.GPUCount == 2 })
	awaitReplicas(t, m.api, fraction0, 250)
	node, err := s.get()
	require.NoError(t, err)
	node.Status.State = v1beta1.Idle // a node of the control plane, of which it wants nothing
	require.NoError(t, s.nodes.Tracker.Update(v1beta1.GroupVersion.WithResource("gpunodes"), node, ""))
	awaitReplicas(t, m.api, fraction0, 100)

	require.Equal(t, v1beta1.TaskDone, s.ask(v1beta1.Applying, nothing, snapshot(t, "two", "[{sharing: {replicas: 2}}]")).Phase)
	awaitReplicas(t, m.api, fraction0, 500)
	stop()
	s.start()
	awaitReplicas(t, m.api, fraction0, 500)
}

// Where the API server does not know GPUNodes, the plugin publishes everything and serves
// claims. Once their definition is there, it creates its own.
func TestGPUNodesAreDefinedLater(t *testing.T) {
	s := steer(newMachine(t, nodetest.NewAPI()))
	var defined atomic.Bool
	undefine(s.nodes, &defined)
	k, _ := s.start()
	awaitDevices(t, s.api, false, untainted)
	k.works(nodetest.Allocate(t, s.api, "a", half0))
	defined.Store(true)
	s.await("no report", func(r *v1beta1.NodeReport) bool { return r.GPUCount == 2 })
}
