package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1alpha1"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/test/simulator/amdgpu"
	"github.com/tranche-dev/tranche/test/simulator/nvdriver"
)

// cutsLast makes each partition of NVIDIA's GPUs take a while.
func cutsLast(d time.Duration) nvdriver.Faults {
	return nvdriver.Faults{Calls: []nvdriver.CallFault{{Call: "CreateGpuInstance", GPU: "*", Delay: metav1.Duration{Duration: d}}}}
}

// slowCuts is cutsLast on node-a.
func (s *suite) slowCuts(d time.Duration) {
	s.t.Helper()
	s.setFaults(cutsLast(d))
}

// keepPluginOff keeps the plugin off a node until it is told to come back.
func (s *suite) keepPluginOff(node string) (back func()) {
	s.t.Helper()
	if s.lab != nil {
		require.NoError(s.t, s.lab.nodes[node].StopPlugin())
		back = sync.OnceFunc(func() { require.NoError(s.t, s.lab.nodes[node].StartPlugin()) })
		s.t.Cleanup(back)
		return back
	}
	sets := s.client.AppsV1().DaemonSets(pluginNamespace)
	set, err := sets.Get(s.ctx, pluginName, metav1.GetOptions{})
	require.NoError(s.t, err)
	require.Nil(s.t, set.Spec.Template.Spec.Affinity)
	before, err := json.Marshal(set.Spec.UpdateStrategy)
	require.NoError(s.t, err)
	patch := func(strategy, affinity string) error {
		_, err := sets.Patch(s.ctx, pluginName, types.MergePatchType,
			fmt.Appendf(nil, `{"spec":{"updateStrategy":%s,"template":{"spec":{"affinity":%s}}}}`, strategy, affinity), metav1.PatchOptions{})
		return err
	}
	// With OnDelete, the other nodes keep theirs.
	require.NoError(s.t, patch(`{"type":"OnDelete","rollingUpdate":null}`, fmt.Sprintf(`{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":
		{"nodeSelectorTerms":[{"matchExpressions":[{"key":"kubernetes.io/hostname","operator":"NotIn","values":[%q]}]}]}}}`, node)))
	here := false
	back = func() {
		s.t.Helper()
		if !here {
			here = true
			assert.NoError(s.t, patch(string(before), "null"))
			s.plugin(node)
		}
	}
	s.t.Cleanup(back)
	s.eventually("the plugin is gone from "+node, func() (bool, string) {
		list, err := s.client.CoreV1().Pods(pluginNamespace).List(s.ctx, metav1.ListOptions{
			LabelSelector: pluginLabel, FieldSelector: fields.OneTermEqualSelector("spec.nodeName", node).String(),
		})
		require.NoError(s.t, err)
		return len(list.Items) == 0, fmt.Sprintf("there are %d", len(list.Items))
	})
	return back
}

// The plugin goes while pods are asked to leave, so nobody gives back what they held:
// at the deadline everything stays as it is, and the condition says what to look at.
// When the plugin is back, the node gets there.
func TestThePluginGoneWhilePodsLeave(t *testing.T) {
	s := start(t)
	before := s.published(nodeA)
	const rules = "{rules: [" + cutInThree + "], switch: {drainDeadline: "
	s.setProfileSpec("cut-in-three", rules+"60s}}")
	s.slowPod(nodeA, "slow", classWhole, 20)
	s.labelProfile(nodeA, "cut-in-three")
	s.waitGPUNode(nodeA, "drains", inState(v1alpha1.Draining))
	back := s.keepPluginOff(nodeA)
	// The taints stay in the slices until the plugin is back.
	n := s.waitGPUNode(nodeA, "has failed", inState(v1alpha1.Failed))
	said := s.requireCondition(n, names.ConditionReady, metav1.ConditionFalse, names.ReasonDrainDeadline)
	for _, part := range []string{"pod " + s.namespace + "/slow (", "should have been gone by", "The node is unchanged, with no profile"} {
		assert.Contains(t, said, part)
	}
	assert.Zero(t, s.machine(nodeA).instances())

	back()
	s.waitGone("slow")
	s.eventually("the node publishes what it did", func() (bool, string) {
		return assert.ObjectsAreEqual(before, s.published(nodeA)), ""
	})
	s.setProfileSpec("cut-in-three", rules+"61s}}") // a new policy, so it is tried at once
	s.waitFollows(nodeA, "cut-in-three")
	assert.Equal(t, 8*3, s.machine(nodeA).instances())
}

// The plugin goes while it changes GPUs, and comes back: the switch ends in the
// profile. Until then the condition says what is waited for, and for how long.
func TestThePluginGoneWhileItChangesGPUs(t *testing.T) {
	s := start(t)
	s.setProfile("cut-in-three", cutInThree)
	s.slowCuts(15 * time.Second)
	s.labelProfile(nodeA, "cut-in-three")
	s.eventually("some partitions are made", func() (bool, string) {
		m := s.machine(nodeA)
		return m.instances() > 0, m.String()
	})
	back := s.keepPluginOff(nodeA)
	n := s.gpuNode(nodeA)
	require.Equal(t, v1alpha1.Applying, n.Status.State, gpuNodeText(n))
	require.NotEmpty(t, s.switchTaints(nodeA), "no pod may come now")
	said := s.requireCondition(n, names.ConditionReady, metav1.ConditionFalse, names.ReasonSwitching)
	for _, part := range []string{"from no profile to profile cut-in-three: the node's plugin changes gpu-0000-", "at the latest, then it is rolled back"} {
		assert.Contains(t, said, part)
	}
	s.clearFaults(nodeA)
	back()
	s.waitFollows(nodeA, "cut-in-three")
	assert.Equal(t, 8*3, s.machine(nodeA).instances())
}

// The controller dies while what was is put back, and another one brings that to its
// end, with the reason why.
func TestTheControllerKilledWhileItRollsBack(t *testing.T) {
	s := start(t)
	broken := s.machine(nodeA).GPUs[7].PCI
	before := s.published(nodeA)
	s.setProfile("cut-in-three", cutInThree)
	s.setFaults(nvdriver.Faults{Calls: []nvdriver.CallFault{
		{Call: "CreateGpuInstance", GPU: broken, Error: nvdriver.Return(nvml.ERROR_UNKNOWN)},
		{Call: "GpuInstanceDestroy", GPU: "*", Delay: metav1.Duration{Duration: 2 * time.Second}},
	}})
	s.labelProfile(nodeA, "cut-in-three")
	n := s.waitGPUNode(nodeA, "rolls back", inState(v1alpha1.RollingBack))
	said := s.requireCondition(n, names.ConditionReady, metav1.ConditionFalse, names.ReasonSwitching)
	assert.Contains(t, said, "rolls back to no profile, because ")
	s.killControllers()
	n = s.waitFailed(nodeA, names.ReasonHardwareFailed)
	said = s.requireCondition(n, names.ConditionReady, metav1.ConditionFalse, names.ReasonHardwareFailed)
	for _, part := range []string{gpu.NameOf(broken), "CreateGpuInstance", "The node is unchanged, with no profile"} {
		assert.Contains(t, said, part)
	}
	assert.Equal(t, v1alpha1.ResultRolledBack, n.Status.History[0].Result)
	assert.Zero(t, s.machine(nodeA).instances())
	assert.Equal(t, before, s.published(nodeA))
}

// The power of a node fails in the middle of a switch. Whatever that takes of pods,
// partitions and modes: when the node is up again, the switch ends in the profile.
func TestTheNodeRebootedInTheMiddle(t *testing.T) {
	for name, test := range map[string]struct {
		node, profile, class string
		state                v1alpha1.State
		faults               nvdriver.Faults
	}{
		"draining": {node: nodeA, profile: "cut-in-three", class: classWhole, state: v1alpha1.Draining},
		"applying": {node: nodeA, profile: "cut-in-three", state: v1alpha1.Applying, faults: cutsLast(10 * time.Second)},
		"the driver is out for a memory mode": {
			node: nodeC, profile: "cpx-nps4", state: v1alpha1.Applying,
			faults: nvdriver.Faults{AMD: &amdgpu.Faults{Driver: []amdgpu.DriverFault{{Step: "load", Delay: metav1.Duration{Duration: 30 * time.Second}}}}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := startOnCluster(t)
			if test.node == nodeA {
				s.setProfile(test.profile, cutInThree)
			}
			if test.class != "" {
				s.slowPod(test.node, "slow", test.class, 120)
			}
			s.setFaultsOn(test.node, test.faults)
			s.unlabelAtEnd(test.node)
			if test.node == nodeC {
				t.Cleanup(func() { s.clearFaults(nodeC); s.memoryModeBack(nodeC) })
			}
			s.setProfileLabel(test.node, test.profile)
			n := s.waitGPUNode(test.node, "is "+string(test.state), inState(test.state))
			boot := n.Status.Node.BootID
			require.NotEmpty(t, s.switchTaints(test.node))
			s.onHost("cluster", "reboot", "--dir", s.cluster, "--node", test.node)
			n = s.waitFollows(test.node, test.profile)
			assert.NotEqual(t, boot, n.Status.Node.BootID)
			assert.Equal(t, v1alpha1.ResultSucceeded, n.Status.History[0].Result)
			s.firstMinors = nil
			if test.node == nodeC {
				assert.Equal(t, 8, strings.Count(s.hardwareOf(nodeC), "CPX NPS4"))
				return
			}
			assert.Equal(t, 8*3, s.machine(nodeA).instances())
			if test.class != "" {
				s.waitGone("slow")
			}
		})
	}
}
