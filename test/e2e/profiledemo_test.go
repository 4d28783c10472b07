package e2e

import (
	"fmt"
	"path/filepath"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/cluster"
	"github.com/tranche-dev/tranche/pkg/gpu"
)

// demoFirst is what a README says to do before the demo's manifest is applied.
var demoFirst = map[string]func(*suite){
	"profile-time-sliced": func(s *suite) { s.follow(nodeA, "time-sliced-10") },
	"profile-extended-single": func(s *suite) {
		const file = repository + "/demo/profile-extended-single/profile/profile.yaml"
		s.t.Cleanup(func() { s.kubectl("delete", "--ignore-not-found", "-f", file) })
		s.kubectl("apply", "--validate=strict", "-f", file)
		s.follow(nodeA, "demo-single")
	},
	"kueue":         func(s *suite) { s.installProject("kueue") },
	"translate-kai": (*suite).createKAIPods,
}

// The pod keeps its partition, all GPUs are cut, pods have what is there, and it
// stays when they go.
func checkProfileAllBalanced(s *suite, pods map[string]*corev1.Pod) {
	before := pods["before"]
	held := s.allocated(before, "")
	assert.Equal(s.t, 1, s.machine(nodeA).instances())
	s.follow(nodeA, "all-balanced")
	requireBalanced := func() {
		s.t.Helper()
		m := s.machine(nodeA)
		require.Len(s.t, m.GPUs, 8)
		for _, g := range m.GPUs {
			require.Len(s.t, g.Instances, 4, m.String())
			assert.Len(s.t, s.devicesOn(nodeA, gpu.NameOf(g.PCI)), 4)
		}
	}
	requireBalanced()
	s.requireSame(before)
	s.requireSees(before, "main", held, "3g.40gb")

	const claims = repository + "/demo/profile-all-balanced/claims/claims.yaml"
	s.t.Cleanup(func() { s.kubectl("delete", "--ignore-not-found", "-f", claims) })
	s.kubectl("apply", "--validate=strict", "-f", claims)
	pods = s.demoPods(before.Namespace)
	require.Len(s.t, pods, 4)
	for name, profile := range map[string]string{"large": "3g.40gb", "middle": "2g.20gb", "small": "1g.10gb"} {
		s.requireSees(pods[name], "main", s.allocated(pods[name], ""), profile)
	}
	requireBalanced()
	s.kubectl("delete", "pod", "-n", before.Namespace, "large", "middle", "small")
	requireBalanced()

	s.setProfileLabel(nodeA, "")
	s.waitFollows(nodeA, "")
	assert.Equal(s.t, 1, s.machine(nodeA).instances())
	s.requireSame(before)
}

// requireSame checks that a pod runs as it did: nobody has evicted or restarted it.
func (s *suite) requireSame(before *corev1.Pod) {
	s.t.Helper()
	now, err := s.client.CoreV1().Pods(before.Namespace).Get(s.ctx, before.Name, metav1.GetOptions{})
	require.NoError(s.t, err)
	require.Equal(s.t, before.UID, now.UID)
	require.Nil(s.t, now.DeletionTimestamp)
	require.Equal(s.t, before.Status.ContainerStatuses[0].ContainerID, now.Status.ContainerStatuses[0].ContainerID)
}

// The pods leave, all GPUs change both modes, and other pods run.
func checkProfileCPXNPS4(s *suite, _ map[string]*corev1.Pod) {
	const namespace, count = "demo-profile-cpx-nps4", 3
	runs := func() map[string]*corev1.Pod {
		var pods map[string]*corev1.Pod
		s.eventually(fmt.Sprintf("%d pods run", count), func() (bool, string) {
			pods = s.demoPods(namespace)
			return len(pods) == count, fmt.Sprintf("there are %d", len(pods))
		})
		return pods
	}
	before := runs()
	idle := newPod("without-gpu")
	idle.Spec.NodeName = nodeC
	s.create(idle)
	without := s.waitRunning("without-gpu")
	s.unlabelAtEnd(nodeC)
	s.t.Cleanup(func() { s.memoryModeBack(nodeC) })
	s.setProfileLabel(nodeC, "cpx-nps4")
	s.waitFollows(nodeC, "cpx-nps4")
	s.firstMinors = nil // the driver was reloaded
	n := s.gpuNode(nodeC)
	for _, g := range n.Status.Node.GPUs {
		assert.Equal(s.t, "CPX NPS4", cluster.ModeText(g.GPUModes), g.Name)
	}
	after := runs()
	for name, pod := range after {
		assert.NotContains(s.t, before, name, "it could not have stayed")
		s.requireSeesAMD(pod, "main", s.allocated(pod, ""), "cpx")
		assert.Equal(s.t, "NPS4", s.attribute(pod, "memoryPartition"))
	}
	for name := range before {
		s.waitEvent(func() []corev1.Event {
			list, err := s.client.CoreV1().Events(namespace).List(s.ctx, metav1.ListOptions{
				FieldSelector: fields.Set{"involvedObject.kind": "Pod", "involvedObject.name": name}.String(),
			})
			require.NoError(s.t, err)
			return list.Items
		}, "pod "+name, "EvictedForSwitch", []string{"Asked to leave", "profile cpx-nps4"})
	}
	require.EqualValues(s.t, count, n.Status.History[0].EvictedPodCount, gpuNodeText(n))
	s.requireSame(without)

	s.kubectl("delete", "-f", filepath.Join(repository, "demo", "profile-cpx-nps4"))
	s.memoryModeBack(nodeC)
}

// memoryModeBack brings AMD GPUs back into the memory mode that they have in the
// beginning: no profile leaves the mode as it is.
func (s *suite) memoryModeBack(node string) {
	s.t.Helper()
	s.setProfileLabel(node, "spx-nps1")
	s.waitFollows(node, "spx-nps1")
	s.setProfileLabel(node, "")
	s.waitFollows(node, "")
	s.firstMinors = nil
}

// Ten pods have one GPU.
func checkProfileTimeSliced(s *suite, _ map[string]*corev1.Pod) {
	const namespace = "demo-profile-time-sliced"
	devices := map[string]int{}
	s.eventually("ten pods run", func() (bool, string) {
		pods := s.demoPods(namespace)
		clear(devices)
		for _, pod := range pods {
			devices[s.allocated(pod, "").Device]++
			assert.Equal(s.t, nodeA, pod.Spec.NodeName)
		}
		return len(pods) == 10, fmt.Sprintf("there are %d", len(pods))
	})
	// The scheduler may pass over a GPU whose slices have just changed, for a moment.
	assert.LessOrEqual(s.t, len(devices), 2, "%v", devices)
	for _, pod := range s.demoPods(namespace) {
		s.requireSeesShare(pod, "main")
		assert.Equal(s.t, "0.10", s.env(pod, "main")["GPU_PORTION"])
		break
	}
}

// Who asks for nvidia.com/gpu has one of the partitions that are there.
func checkProfileExtendedSingle(s *suite, pods map[string]*corev1.Pod) {
	require.Len(s.t, pods, 2)
	assert.Equal(s.t, 8*7, s.machine(nodeA).instances())
	first, second := s.allocated(pods["first"], ""), s.allocated(pods["second"], "")
	assert.NotEqual(s.t, first.Device, second.Device)
	s.requireSees(pods["first"], "main", first, "1g.10gb")
	s.requireSees(pods["second"], "main", second, "1g.10gb")
	s.kubectl("delete", "pod", "-n", pods["first"].Namespace, "first", "second")
	assert.Equal(s.t, 8*7, s.machine(nodeA).instances())
	s.setProfileLabel(nodeA, "")
	s.waitFollows(nodeA, "")
}

// The switch fails at one GPU, the others are put back, and when the GPU works, the
// next try gets there.
func checkProfileRollback(s *suite, pods map[string]*corev1.Pod) {
	const broken = "gpu-0000-d1-00-0"
	steady := pods["steady"]
	s.unlabelAtEnd(nodeA)
	s.replaceOnDisk(nodeA, faultsFile, fileText(repository+"/demo/profile-rollback/fault/faults.yaml"))
	s.setProfileLabel(nodeA, "all-1g.10gb")
	n := s.waitFailed(nodeA, names.ReasonHardwareFailed)
	said := s.requireCondition(n, names.ConditionReady, metav1.ConditionFalse, names.ReasonHardwareFailed)
	for _, part := range []string{"profile all-1g.10gb could not be applied", broken, "CreateGpuInstance", "The node is unchanged, with no profile", "Attempt 2 starts at"} {
		assert.Contains(s.t, said, part)
	}
	assert.Equal(s.t, v1beta1.ResultRolledBack, n.Status.History[0].Result)
	assert.Equal(s.t, 1, s.machine(nodeA).instances(), "all but the pod's is taken back")
	assert.NotEmpty(s.t, s.devicesOn(nodeA, broken)[broken], "the whole GPU is offered as before")
	s.requireSame(steady)

	s.clearFaults(nodeA)
	n = s.waitFollows(nodeA, "all-1g.10gb")
	assert.Equal(s.t, v1beta1.ResultSucceeded, n.Status.History[0].Result)
	assert.Equal(s.t, v1beta1.ResultRolledBack, n.Status.History[1].Result)
	assert.Equal(s.t, 8*7, s.machine(nodeA).instances())
	s.requireSame(steady)
	s.setProfileLabel(nodeA, "")
	s.waitFollows(nodeA, "")
	s.requireSame(steady)
}

// Nobody is evicted, and everything is as it was.
func checkProfileBudget(s *suite, pods map[string]*corev1.Pod) {
	require.Len(s.t, pods, 1)
	var serving *corev1.Pod
	for _, pod := range pods {
		serving = pod
	}
	device := s.allocated(serving, "")
	s.unlabelAtEnd(nodeA)
	s.setProfileLabel(nodeA, "demo-budget")
	n := s.waitFailed(nodeA, names.ReasonDrainBlocked)
	said := s.requireCondition(n, names.ConditionReady, metav1.ConditionFalse, names.ReasonDrainBlocked)
	for _, part := range []string{"profile demo-budget could not be applied", "no pod was evicted, because these cannot be", serving.Name, "always-one", "The node is unchanged"} {
		assert.Contains(s.t, said, part)
	}
	assert.Zero(s.t, n.Status.History[0].EvictedPodCount)
	require.Len(s.t, n.Status.Switch.Blockers, 1)
	assert.Equal(s.t, serving.UID, n.Status.Switch.Blockers[0].UID)
	s.requireSame(serving)
	s.requireSees(serving, "main", device, "1g.10gb")
	assert.Equal(s.t, 1, s.machine(nodeA).instances())
	s.setProfileLabel(nodeA, "")
	s.waitFollows(nodeA, "")
	s.requireSame(serving)
}
