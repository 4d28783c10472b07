package e2e

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/api/v1alpha1"
	"github.com/tranche-dev/tranche/pkg/hardware/simulate"
)

// slowPartitions makes each partition of node-a take a moment, so that a switch can
// be seen in the middle.
func (s *suite) slowPartitions() {
	s.t.Helper()
	s.setFaults(simulate.Faults{Calls: []simulate.CallFault{
		{Call: "CreateGpuInstance", GPU: "*", Delay: metav1.Duration{Duration: 500 * time.Millisecond}},
	}})
}

// The controller dies in the middle of a switch, and another one brings it to its end.
func TestTheControllerKilledInTheMiddle(t *testing.T) {
	for name, state := range map[string]v1alpha1.State{"draining": v1alpha1.Draining, "applying": v1alpha1.Applying} {
		t.Run(name, func(t *testing.T) {
			s := start(t)
			s.setProfile("cut-in-three", cutInThree)
			s.slowPod(nodeA, "slow", classWhole, 5)
			s.slowPartitions()
			s.labelProfile(nodeA, "cut-in-three")
			n := s.waitGPUNode(nodeA, "is "+string(state), inState(state))
			id := n.Status.Switch.ID
			assert.NotEmpty(t, s.taintRules(nodeA))
			s.killControllers()
			n = s.waitFollows(nodeA, "cut-in-three")
			assert.Equal(t, 8*3, s.machine(nodeA).instances())
			require.Equal(t, v1alpha1.ResultSucceeded, n.Status.History[0].Result)
			assert.Nil(t, n.Status.Switch)
			t.Logf("switch %s took %s", id, n.Status.History[0].Duration.Duration)
		})
	}
}

// The plugin dies while it changes cards. When it is back, the switch ends in the
// profile.
func TestThePluginKilledWhileItChangesCards(t *testing.T) {
	s := start(t)
	// A new pod, so that the kubelet starts its container again at once.
	plugin := s.restartPlugin(nodeA)
	s.setProfile("cut-in-three", cutInThree)
	s.slowPartitions()
	s.labelProfile(nodeA, "cut-in-three")
	s.eventually("some partitions are made", func() (bool, string) {
		m := s.machine(nodeA)
		return m.instances() > 2, m.String()
	})
	require.Less(t, s.machine(nodeA).instances(), 8*3, "it was too fast, so this test shows nothing")
	s.killPlugin(plugin)
	s.waitFollows(nodeA, "cut-in-three")
	assert.Equal(t, 8*3, s.machine(nodeA).instances())
	assert.Equal(t, plugin.UID, s.plugin(nodeA).UID)
}

// A person deletes the rules that keep the scheduler off the cards: they are put back
// while they are needed, and gone at the end.
func TestAPersonDeletesOurTaintRule(t *testing.T) {
	s := start(t)
	s.setProfile("cut-in-three", cutInThree)
	s.slowPod(nodeA, "slow", classWhole, 15)
	s.labelProfile(nodeA, "cut-in-three")
	s.waitGPUNode(nodeA, "drains", inState(v1alpha1.Draining))
	rules := s.client.ResourceV1().DeviceTaintRules()
	names := s.taintRules(nodeA)
	require.NotEmpty(t, names)
	old, err := rules.Get(s.ctx, names[0], metav1.GetOptions{})
	require.NoError(t, err)
	require.NoError(t, rules.Delete(s.ctx, old.Name, metav1.DeleteOptions{}))
	s.eventually("the rule is put back", func() (bool, string) {
		now, err := rules.Get(s.ctx, old.Name, metav1.GetOptions{})
		return err == nil && now.UID != old.UID, gpuNodeText(s.gpuNode(nodeA))
	})
	assert.Equal(t, v1alpha1.Draining, s.gpuNode(nodeA).Status.State, "it was put back too late")
	s.waitFollows(nodeA, "cut-in-three")
}

// The profile is changed again in the middle: what was begun is finished, or given up,
// and the node ends in the last wish.
func TestTheProfileChangedInTheMiddle(t *testing.T) {
	for name, state := range map[string]v1alpha1.State{"draining": v1alpha1.Draining, "applying": v1alpha1.Applying} {
		t.Run(name, func(t *testing.T) {
			s := start(t)
			s.setProfile("cut-in-three", cutInThree)
			s.setProfile("sevenths", `{cards: {vendor: nvidia}, mig: {mode: Static, partitions: [{profile: 1g.10gb}]}}`)
			s.slowPod(nodeA, "slow", classWhole, 5)
			s.slowPartitions()
			s.labelProfile(nodeA, "cut-in-three")
			s.waitGPUNode(nodeA, "is "+string(state), inState(state))
			s.setProfileLabel(nodeA, "sevenths")
			s.waitFollows(nodeA, "sevenths")
			assert.Equal(t, 8*7, s.machine(nodeA).instances())
		})
	}
}
