package e2e

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1alpha1"
)

// A tenant whose pods and claims tolerate every taint used to get a free device of a
// tainted GPU again after each eviction, until the drain's deadline. And any pod with the
// nodeSelector of a paused client was waited for, one minute for each switch.
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
	const clientLabel = names.LabelGPUClient
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
	assert.Equal(t, v1alpha1.ResultSucceeded, record.Result)
	assert.EqualValues(t, 2, record.Evicted)
	assert.Less(t, record.Duration.Duration, s.patience(), "nobody waits for the tenant's pod")
	assert.Equal(t, corev1.PodRunning, s.pod("client").Status.Phase)
	assert.Zero(t, s.ready("tolerant"))
	assert.Equal(t, 8*3, s.machine(nodeA).instances())
}

// Two claims conflict over one device. The message to the users of one used to name the
// claim and the pod of the other, which are another tenant's.
func TestAConflictNamesNobodyOfAnotherNamespace(t *testing.T) {
	s := start(t)
	other := *s
	namespace, err := s.client.CoreV1().Namespaces().Create(s.ctx,
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "secret-"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	other.namespace = namespace.Name
	t.Cleanup(func() {
		other.deletePods()
		assert.NoError(t, s.client.CoreV1().Namespaces().Delete(s.ctx, other.namespace, metav1.DeleteOptions{}))
	})
	other.gpuPod("secret-holder", class1g10gb)
	held := other.allocated(other.waitRunning("secret-holder"), "")

	held.Request = "gpu"
	s.podWithAllocation("rival", held)
	message := s.waitPodEvent("rival", prepareFailed, held.Device, "a claim in another namespace")
	assert.NotContains(t, message, "secret")
	assert.NotContains(t, s.eventsText("rival"), "secret")
	claim, err := s.client.ResourceV1().ResourceClaims(s.namespace).Get(s.ctx, "rival", metav1.GetOptions{})
	require.NoError(t, err)
	assert.NotContains(t, claim.String(), "secret")
	s.waitNodeEvent(nodeA, "ClaimConflict", "claim "+other.namespace+"/", "(pod secret-holder)", "Claim "+s.namespace+"/rival is not prepared")

	s.delete("rival")
	assert.Equal(t, corev1.PodRunning, other.pod("secret-holder").Status.Phase)
	s.requireInstances(1)
}
