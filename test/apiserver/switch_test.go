package apiserver

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1alpha1"
	"github.com/tranche-dev/tranche/test/allocator"
)

// class selects the smallest partitions.
var class = &resourceapi.DeviceClass{
	ObjectMeta: metav1.ObjectMeta{Name: "small"},
	Spec: resourceapi.DeviceClassSpec{Selectors: []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{
		Expression: `device.driver == "gpu.tranche.dev" && device.attributes["gpu.tranche.dev"].?profile.orValue("") == "1g.10gb"`,
	}}}},
}

// schedule makes a pod with a claim, and does what the scheduler does with both.
func (c *cluster) schedule() (*corev1.Pod, *resourceapi.ResourceClaim) {
	c.t.Helper()
	ctx := c.t.Context()
	claims := c.kube.ResourceV1().ResourceClaims(metav1.NamespaceDefault)
	claim, err := claims.Create(ctx, &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Name: "gpu"},
		Spec: resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{{
			Name: "gpu", Exactly: &resourceapi.ExactDeviceRequest{DeviceClassName: class.Name},
		}}}},
	}, metav1.CreateOptions{})
	require.NoError(c.t, err)
	pods := c.kube.CoreV1().Pods(metav1.NamespaceDefault)
	pod, err := pods.Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "holder"},
		Spec: corev1.PodSpec{
			NodeName:       nodeName,
			ResourceClaims: []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimName: ptr.To(claim.Name)}},
			Containers: []corev1.Container{{
				Name: "main", Image: "none",
				Resources: corev1.ResourceRequirements{Claims: []corev1.ResourceClaim{{Name: "gpu"}}},
			}},
		},
	}, metav1.CreateOptions{})
	require.NoError(c.t, err)
	pod.Status.Phase = corev1.PodRunning
	pod, err = pods.UpdateStatus(ctx, pod, metav1.UpdateOptions{})
	require.NoError(c.t, err)

	grant, err := allocator.New([]*resourceapi.DeviceClass{class}, c.slices()).Allocate(ctx, nodeName, claim)
	require.NoError(c.t, err)
	require.NotNil(c.t, grant, "no device fits")
	claim.Status.Allocation = &grant.Result
	claim.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: pod.Name, UID: pod.UID}}
	claim, err = claims.UpdateStatus(ctx, claim, metav1.UpdateOptions{})
	require.NoError(c.t, err)
	return pod, claim
}

// end does what the kubelet and the claim controller do with a pod that was evicted. It
// tells whether the pod is gone.
func (c *cluster) end(k *kubelet, pod *corev1.Pod, claim *resourceapi.ResourceClaim) bool {
	ctx := c.t.Context()
	pods := c.kube.CoreV1().Pods(pod.Namespace)
	now, err := pods.Get(ctx, pod.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return true
	}
	if !assert.NoError(c.t, err) || now.DeletionTimestamp == nil {
		return false
	}
	problem, err := k.unprepare(ctx, claim)
	if !assert.NoError(c.t, err) || !assert.Empty(c.t, problem) {
		return false
	}
	claims := c.kube.ResourceV1().ResourceClaims(claim.Namespace)
	held, err := claims.Get(ctx, claim.Name, metav1.GetOptions{})
	if !assert.NoError(c.t, err) {
		return false
	}
	held.Status = resourceapi.ResourceClaimStatus{}
	_, err = claims.UpdateStatus(ctx, held, metav1.UpdateOptions{})
	if apierrors.IsConflict(err) { // the plugin writes the devices' status
		return false
	}
	assert.NoError(c.t, err)
	assert.NoError(c.t, pods.Delete(ctx, pod.Name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}))
	return false
}

// awaitPartitions waits until the node's pool is complete, which the allocator needs.
func (c *cluster) awaitPartitions() {
	c.t.Helper()
	c.await("the node does not publish all its devices", func() bool {
		all := c.slices()
		return len(all) > 0 && int64(len(all)) == all[0].Spec.Pool.ResourceSliceCount && c.devices(isPartition) > 0
	})
}

func (c *cluster) gpuNode() *v1alpha1.GPUNode {
	n, err := c.tranche.GPUNodes().Get(c.t.Context(), nodeName, metav1.GetOptions{})
	if err != nil {
		return &v1alpha1.GPUNode{}
	}
	return n
}

// A node that gets the label of a profile is drained and switched: what the plugin and the
// controller say to each other goes through the API server's validation, and its eviction
// API.
func TestASwitch(t *testing.T) {
	c := startCluster(t)
	k, _ := c.startPlugin()
	c.startController()
	c.awaitPartitions()
	c.await("the node reports nothing", func() bool {
		n := c.gpuNode()
		return n.Status.Node != nil && n.Status.Node.Count == 2 && n.Status.State == v1alpha1.Idle
	})
	pod, claim := c.schedule()
	require.NotEmpty(t, k.prepare(claim))

	_, err := c.tranche.PartitionProfiles().Create(t.Context(), &v1alpha1.PartitionProfile{
		ObjectMeta: metav1.ObjectMeta{Name: "whole"},
		Spec:       v1alpha1.PartitionProfileSpec{Rules: []v1alpha1.Rule{{MIG: &v1alpha1.MIG{Mode: v1alpha1.MIGDisabled}}}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = c.kube.CoreV1().Nodes().Patch(t.Context(), nodeName, types.MergePatchType,
		[]byte(`{"metadata":{"labels":{"`+names.LabelProfile+`":"whole"}}}`), metav1.PatchOptions{})
	require.NoError(t, err)

	c.await("no device is tainted", func() bool { return c.devices(isTainted) > 0 })
	c.await("the pod is not evicted", func() bool { return c.end(k, pod, claim) })
	c.await("the profile is not applied", func() bool {
		n := c.gpuNode()
		return n.Status.Applied != nil && n.Status.Applied.Profile == "whole" && n.Status.State == v1alpha1.Idle
	})
	c.await("taints are left", func() bool { return c.devices(isTainted) == 0 })
	assert.Zero(t, c.devices(isPartition), "partitions are published although MIG is disabled")
	history := c.gpuNode().Status.History
	require.NotEmpty(t, history)
	assert.EqualValues(t, 1, history[0].Evicted)
}

// A plugin that starts again on unchanged GPUs writes no slice, and still knows the claims
// that it prepared.
func TestAPluginThatStartsAgain(t *testing.T) {
	c := startCluster(t)
	k, stop := c.startPlugin()
	c.startController()
	c.awaitPartitions()
	_, claim := c.schedule()
	prepared := k.prepare(claim)
	versions := func() map[string]string {
		all := map[string]string{}
		for _, slice := range c.slices() {
			all[slice.Name] = slice.ResourceVersion
		}
		return all
	}
	before := versions()
	stop()
	k, _ = c.startPlugin()
	assert.Equal(t, prepared, k.prepare(claim))
	assert.Equal(t, before, versions())
}
