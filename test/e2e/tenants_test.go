package e2e

import (
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1beta1"
)

// A tenant whose pods and claims tolerate every taint used to get a free device of a
// tainted GPU again after each eviction, until the drain's deadline. And any pod with the
// nodeSelector of a paused monitoring pod was waited for, one minute for each switch.
func TestTenantsDoNotHoldUpASwitch(t *testing.T) {
	s := start(t)
	s.setProfile("cut-in-three", cutInThree)
	s.unlabelAtEnd(nodeA)
	device := request(classWhole, "")
	device.Exactly.Tolerations = []resourceapi.DeviceToleration{{Operator: resourceapi.DeviceTolerationOpExists}}
	s.template("tolerant", resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{device}})
	s.deploy("tolerant", nodeA, 2, fromTemplate("tolerant"), func(spec *corev1.PodSpec) {
		spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	})
	const clientLabel = names.LabelGPUMonitoring
	s.labelNode(nodeA, clientLabel, "true")
	t.Cleanup(func() { s.labelNode(nodeA, clientLabel, "") })
	client := newPod("client")
	client.Spec.NodeSelector = map[string]string{corev1.LabelHostname: nodeA, clientLabel: "true"}
	s.create(client)
	s.waitReady("tolerant", 2)
	s.waitRunning("client")

	s.setProfileLabel(nodeA, "cut-in-three")
	n := s.waitFollows(nodeA, "cut-in-three")
	record := n.Status.History[0]
	assert.Equal(t, v1beta1.ResultSucceeded, record.Result)
	assert.Contains(t, []int32{2, 3, 4}, record.EvictedPodCount, "a scheduler that still has the older slices can place each replacement once")
	assert.Less(t, record.Duration.Duration, s.patience(), "nobody waits for the tenant's pod")
	assert.Equal(t, corev1.PodRunning, s.pod("client").Status.Phase)
	assert.Zero(t, s.ready("tolerant"))
	assert.Equal(t, 8*3, s.machine(nodeA).instances())
}
