package e2e

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// Pods that share a claim would come back to a GPU whatever taint it has, as their claim
// is allocated already: they are kept off the node until the GPU is another. When the
// node offers whole GPUs again, they run again.
func TestPodsThatShareAClaimLeave(t *testing.T) {
	s := start(t)
	s.setProfile("cut-in-three", cutInThree)
	_, err := s.client.ResourceV1().ResourceClaims(s.namespace).Create(s.ctx, &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Name: "shared"},
		Spec: resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{
			Requests: []resourceapi.DeviceRequest{request(classWhole, s.machine(nodeA).GPUs[0].PCI)},
		}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	s.unlabelAtEnd(nodeA)
	s.deploy("pair", nodeA, 2, fromClaim("shared"))
	s.waitReady("pair", 2)

	s.setProfileLabel(nodeA, "cut-in-three")
	n := s.waitFollows(nodeA, "cut-in-three")
	assert.GreaterOrEqual(t, n.Status.History[0].EvictedPodCount, int32(2))
	assert.Equal(t, 8*3, s.machine(nodeA).instances())
	assert.Zero(t, s.ready("pair"))

	s.setProfileLabel(nodeA, "")
	s.waitFollows(nodeA, "")
	s.waitReady("pair", 2)
}

// deploy keeps pods with a claim each on a node, until the test ends.
func (s *suite) deploy(name, node string, replicas int32, claim corev1.PodResourceClaim, change ...func(*corev1.PodSpec)) {
	s.t.Helper()
	pod := newPod("", claim)
	pod.Spec.RestartPolicy = corev1.RestartPolicyAlways
	pod.Spec.NodeSelector = map[string]string{corev1.LabelHostname: node}
	for _, c := range change {
		c(&pod.Spec)
	}
	labels := map[string]string{"deployment": name}
	deployments := s.client.AppsV1().Deployments(s.namespace)
	_, err := deployments.Create(s.ctx, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To(replicas),
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: pod.Spec},
		},
	}, metav1.CreateOptions{})
	require.NoError(s.t, err)
	s.t.Cleanup(func() {
		assert.NoError(s.t, deployments.Delete(s.ctx, name, metav1.DeleteOptions{}))
	})
}

// ready is how many pods of a deployment run.
func (s *suite) ready(deployment string) int {
	s.t.Helper()
	d, err := s.client.AppsV1().Deployments(s.namespace).Get(s.ctx, deployment, metav1.GetOptions{})
	require.NoError(s.t, err)
	return int(d.Status.ReadyReplicas)
}

func (s *suite) waitReady(deployment string, pods int) {
	s.t.Helper()
	s.eventually("all pods of "+deployment+" run", func() (bool, string) {
		ready := s.ready(deployment)
		return ready == pods, fmt.Sprint(ready)
	})
}
