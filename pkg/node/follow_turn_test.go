package node

import (
	"slices"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/tranche-dev/tranche/api/v1alpha1"
	"github.com/tranche-dev/tranche/pkg/client/clientfake"
)

// other is a second plugin on the machine, as during a rolling update. It has a client
// of its own to the same objects, so that a test sees what it writes.
func (s *steered) other() (second *steered, writes *atomic.Int64) {
	m := *s.machine
	config := *s.config
	m.config = &config
	second, writes = steer(&m), &atomic.Int64{}
	client := clientfake.New()
	client.Tracker = s.nodes.Tracker
	client.ReactionChain = []clienttesting.Reactor{&clienttesting.SimpleReactor{Verb: "*", Resource: "*", Reaction: clienttesting.ObjectReaction(s.nodes.Tracker)}}
	client.WatchReactionChain = s.nodes.WatchReactionChain
	second.nodes = client
	client.PrependReactor("patch", "gpunodes", second.applyReport)
	for _, verb := range []string{"create", "patch"} {
		client.PrependReactor(verb, "gpunodes", func(clienttesting.Action) (bool, runtime.Object, error) {
			writes.Add(1)
			return false, nil, nil
		})
	}
	config.GPUNodes = client.GPUNodes()
	config.PodUID = "second"
	return second, writes
}

// During a rolling update the older plugin finishes what it changes, and only then the
// newer one touches the cards or the report: it does not put back what is about to
// change, and goes on where the older one ended.
func TestOnePluginFollows(t *testing.T) {
	s := steer(newMachine(t, newAPI()))
	s.config.PodUID = "first"
	_, stop := s.start()
	s.await("no report", func(r *v1alpha1.NodeReport) bool { return r.Count == 2 })
	sevens := wish(t, "all-1g.10gb", "[{mig: {mode: Static, partitions: [{profile: 1g.10gb, count: 7}]}}]")
	require.Equal(t, v1alpha1.TaskDone, s.ask(v1alpha1.Applying, nothing, sevens).Phase)

	second, writes := s.other()
	k, _ := second.start()
	require.Eventually(t, func() bool {
		return slices.ContainsFunc(second.nodes.Actions(), func(a clienttesting.Action) bool { return a.GetVerb() == "watch" })
	}, patience, tick, "the second does not watch the GPUNode")
	halves := wish(t, "halves", "[{mig: {mode: Static, partitions: [{profile: 3g.40gb, count: 2}]}}]")
	task := s.ask(v1alpha1.Applying, sevens, halves)
	require.Equal(t, v1alpha1.TaskDone, task.Phase, task.Message)
	assert.Len(t, s.partitions(), 4)

	// The newer one serves the kubelet, and the older one says so.
	a := allocate(t, s.api, "a", half0)
	require.Eventually(t, func() bool { return k.prepare(a)[string(a.UID)].Error == "" }, patience, tick, "it does not see what the older one has changed")
	s.await("what the newer one has prepared is not reported", func(r *v1alpha1.NodeReport) bool { return r.Held == 1 && len(r.Cards[0].Held) == 1 })
	require.Empty(t, k.unprepare(a))
	s.await("what the newer one has released is reported", func(r *v1alpha1.NodeReport) bool { return r.Held == 0 })
	assert.Zero(t, writes.Load(), "two write how the node is")

	stop()
	second.last = s.last
	task = second.ask(v1alpha1.RollingBack, sevens, halves)
	require.Equal(t, v1alpha1.TaskDone, task.Phase, task.Message)
	assert.Len(t, s.partitions(), 14)
	assert.NotZero(t, writes.Load())
}
