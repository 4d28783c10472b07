package e2e

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1alpha1"
)

// A pod that tolerates everything, and ends neither when it is asked to nor by the
// deadline: everything stays as it is, the pod included, and the condition names it.
// When it is gone, the node gets there.
func TestAPodThatToleratesEverythingAndNeverLeaves(t *testing.T) {
	s := startOnCluster(t)
	before := s.published(nodeA)
	device := request(classWhole, "")
	device.Exactly.Tolerations = []resourceapi.DeviceToleration{{Operator: resourceapi.DeviceTolerationOpExists}}
	s.template("tolerant", resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{device}})
	pod := newPod("stubborn", fromTemplate("tolerant"))
	pod.Spec.NodeSelector = map[string]string{corev1.LabelHostname: nodeA}
	pod.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	pod.Spec.TerminationGracePeriodSeconds = ptr.To[int64](600)
	s.create(pod)
	running := s.waitRunning("stubborn")
	// What has so much time gets it: the kubelet does not take it back.
	t.Cleanup(func() { s.killProcesses(running) })

	const rules = "{rules: [" + cutInThree + "], switch: {nodeTaint: true, drainDeadline: "
	s.setProfileSpec("cut-in-three", rules+"6s}}")
	s.labelProfile(nodeA, "cut-in-three")
	s.waitGPUNode(nodeA, "drains", inState(v1alpha1.Draining))
	assert.Contains(t, s.leftOfSwitches(nodeA), "taint "+names.TaintRepartitioning+"=cut-in-three:NoSchedule")
	n := s.waitFailed(nodeA, names.ReasonDrainDeadline)
	said := s.requireCondition(n, names.ConditionReady, metav1.ConditionFalse, names.ReasonDrainDeadline)
	for _, part := range []string{
		"profile cut-in-three could not be applied: not all pods left the GPUs within 6s",
		"pod " + s.namespace + "/stubborn (", "is ending, and has 600 s for it", "The node is unchanged, with no profile", "not evicted again automatically. It is retried when the profile, its policy",
	} {
		assert.Contains(t, said, part)
	}
	assert.Equal(t, v1alpha1.ResultFailed, n.Status.History[0].Result)
	assert.EqualValues(t, 1, n.Status.History[0].Evicted)
	now := s.pod("stubborn")
	assert.Equal(t, corev1.PodRunning, now.Status.Phase)
	assert.Equal(t, running.Status.ContainerStatuses[0].ContainerID, now.Status.ContainerStatuses[0].ContainerID)
	assert.NotNil(t, now.Status.ContainerStatuses[0].State.Running)
	assert.Zero(t, s.machine(nodeA).instances())
	s.eventually("what was withheld is published again", func() (bool, string) {
		now := s.published(nodeA)
		return slices.Equal(before, now), fmt.Sprintf("%d devices, before %d", len(now), len(before))
	})

	s.killProcesses(running)
	s.waitGone("stubborn")
	s.setProfileSpec("cut-in-three", rules+"7s}}") // a new policy, so it is tried at once
	s.waitFollows(nodeA, "cut-in-three")
	assert.Equal(t, 8*3, s.machine(nodeA).instances())
}

// Another system starts while pods are evicted: the switch is cancelled, the
// condition says who it is and what to do, and when it is gone, the node gets there.
func TestAnotherOwnerStartsMeanwhile(t *testing.T) {
	for name, test := range map[string]struct {
		node, rule, class string
		appear            func(*suite) (disappear func())
		says              []string
	}{
		"mig-manager": {nodeA, cutInThree, classWhole, migManager, []string{
			"of mig-manager runs here", "nvidia.com/gpu.deploy.mig-manager=false",
		}},
		"AMD's device config manager": {nodeC, `{gpus: {vendor: amd}, amd: {computePartition: DPX}}`, classCPX, configManager, []string{
			"device config manager runs here", "spec.configManager.enable=false",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			s := startOnCluster(t)
			s.setProfile("contested", test.rule)
			// The plugin looks for the programs of other systems every 5 s.
			s.slowPod(test.node, "slow", test.class, 60)
			before := s.hardwareOf(test.node)
			s.labelProfile(test.node, "contested")
			s.waitGPUNode(test.node, "drains", inState(v1alpha1.Draining))
			disappear := test.appear(s)
			t.Cleanup(disappear)
			n := s.waitGPUNode(test.node, "has given up", inState(v1alpha1.Idle))
			s.requireUntainted(test.node)
			said := s.requireCondition(n, names.ConditionConflict, metav1.ConditionTrue, "OtherOwner")
			for _, part := range append(test.says, "other systems serve GPUs of the node, so Tranche does not change their modes and partitions") {
				assert.Contains(t, said, part)
			}
			assert.Equal(t, said, s.requireCondition(n, names.ConditionReady, metav1.ConditionFalse, names.ReasonConflict))
			assert.Equal(t, names.ReasonConflict, n.Status.History[0].Reason)
			assert.Equal(t, v1alpha1.ResultFailed, n.Status.History[0].Result)
			assert.Equal(t, before, s.hardwareOf(test.node))

			disappear()
			n = s.waitFollows(test.node, "contested")
			s.requireCondition(n, names.ConditionConflict, metav1.ConditionFalse, names.ReasonNone)
			assert.NotEqual(t, before, s.hardwareOf(test.node))
		})
	}
}

// hardwareOf is what the simulated GPUs of a node are: how they are cut, and AMD's
// modes.
func (s *suite) hardwareOf(node string) string {
	s.t.Helper()
	if node != nodeC {
		return s.machine(node).String()
	}
	text := ""
	for _, pci := range s.amdGPUs() {
		text += pci + " " + s.amdFile(pciDevices+pci+"/current_compute_partition") + " " + s.amdFile(pciDevices+pci+"/current_memory_partition") + "\n"
	}
	return text
}
