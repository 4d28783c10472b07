package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/pkg/gpu"
)

// sevenSlices divides each GPU in seven, and nvidia.com/gpu is one of ten replicas of one.
const sevenSlices = `{gpus: {vendor: nvidia}, mig: {mode: Static, partitions: [{profile: 1g.10gb, count: 7}]}, sharing: {replicas: 10, failRequestsGreaterThanOne: true}, extendedResource: {device: AutoReplica}}`

// requesting is a pod as for NVIDIA's device plugin.
func requesting(name, resourceName string, count int) *corev1.Pod {
	pod := newPod(name)
	quantity := *resource.NewQuantity(int64(count), resource.DecimalSI)
	pod.Spec.NodeSelector = map[string]string{corev1.LabelHostname: nodeA}
	pod.Spec.Tolerations = []corev1.Toleration{{Key: "nvidia.com/gpu", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}}
	pod.Spec.Containers[0].Resources = corev1.ResourceRequirements{
		Limits:   corev1.ResourceList{corev1.ResourceName(resourceName): quantity},
		Requests: corev1.ResourceList{corev1.ResourceName(resourceName): quantity},
	}
	return pod
}

// allDevices lists the devices of a pod.
func (s *suite) allDevices(pod *corev1.Pod) (devices []string) {
	s.t.Helper()
	for _, claim := range s.claims(pod) {
		require.NotNil(s.t, claim.Status.Allocation)
		for _, result := range claim.Status.Allocation.Devices.Results {
			devices = append(devices, result.Device)
		}
	}
	return devices
}

// nvidia.com/gpu: 1 is one of ten replicas of a partition, and the first partition is filled
// before the second. A container with two is refused with the reason.
func TestReplicasOfPartitions(t *testing.T) {
	s := start(t)
	s.setProfile("seven-slices", sevenSlices)
	s.follow(nodeA, "seven-slices")
	const count = 12
	var names []string
	for n := range count {
		names = append(names, fmt.Sprintf("slice-%d", n))
		s.create(requesting(names[n], "nvidia.com/gpu", 1))
	}
	s.waitRunning(names...)
	held := map[string]int{}
	for _, name := range names {
		devices := s.allDevices(s.pod(name))
		require.Len(t, devices, 1)
		assert.Contains(t, devices[0], "-mig-1g-10gb-")
		assert.True(t, strings.HasSuffix(devices[0], "-fraction-share"), devices[0])
		held[devices[0]]++
	}
	// The scheduler may pass over a partition whose slices have just changed, for a moment.
	assert.Len(t, held, 2, "%v", held)
	for device, n := range held {
		assert.LessOrEqual(t, n, 10, device)
	}
	assert.Equal(t, 8*7, s.machine(nodeA).instances())

	s.create(requesting("two", "nvidia.com/gpu", 2))
	s.waitPodEvent("two", "FailedPrepareDynamicResources", "asks for 2 shares", "failRequestsGreaterThanOne")
	s.delete(append(names, "two")...)
	assert.Equal(t, 8*7, s.machine(nodeA).instances())
}

// nvidia.com/gpu: 7 on a node whose GPUs are divided in seven is seven partitions, with a
// profile of the chart.
func TestSevenPartitions(t *testing.T) {
	s := startOnCluster(t)
	s.follow(nodeA, "all-1g.10gb")
	s.create(requesting("seven", "nvidia.com/gpu", 7))
	pod := s.waitRunning("seven")
	devices := s.allDevices(pod)
	require.Len(t, devices, 7)
	gpus, distinct := map[string]bool{}, map[string]bool{}
	for _, device := range devices {
		gpus[gpu.OfDevice(device)], distinct[device] = true, true
	}
	assert.Len(t, distinct, 7)
	assert.Len(t, gpus, 1, "one GPU is filled before the next")
	assert.Len(t, devicesIn(s.env(s.pod("seven"), "main")), 7)
	s.delete("seven")
}

// The quota of the namespace counts pods and claims by the class of the resource.
func TestQuotaOfGPUs(t *testing.T) {
	s := start(t)
	s.follow(nodeA, "all-1g.10gb")
	file := filepath.Join(t.TempDir(), "compute-resources.yaml")
	require.NoError(t, os.WriteFile(file, []byte(`apiVersion: v1
kind: ResourceQuota
metadata:
  name: compute-resources
spec:
  hard:
    requests.nvidia.com/gpu: 4
`), 0o600))
	s.kubectl("-n", s.namespace, "apply", "-f", file)
	s.eventually("the quota is counted", func() (bool, string) {
		quota, err := s.client.CoreV1().ResourceQuotas(s.namespace).Get(s.ctx, "compute-resources", metav1.GetOptions{})
		return err == nil && quota.Status.Used != nil, fmt.Sprint(err)
	})
	s.create(requesting("three", "nvidia.com/gpu", 3))
	s.create(requesting("one", "nvidia.com/gpu", 1))
	s.waitRunning("three", "one")
	refused := func(pod *corev1.Pod) {
		_, err := s.client.CoreV1().Pods(s.namespace).Create(s.ctx, pod, metav1.CreateOptions{})
		require.Error(t, err)
		assert.True(t, apierrors.IsForbidden(err), err)
		assert.Contains(t, err.Error(), "exceeded quota: compute-resources")
	}
	refused(requesting("five", "nvidia.com/gpu", 1))
	quota, err := s.client.CoreV1().ResourceQuotas(s.namespace).Get(s.ctx, "compute-resources", metav1.GetOptions{})
	require.NoError(t, err)
	used := quota.Status.Used["requests.nvidia.com/gpu"]
	assert.EqualValues(t, 4, used.Value(), "claims that the scheduler creates do not count twice")
	s.delete("one")
	s.eventually("the next one has room", func() (bool, string) {
		_, err := s.client.CoreV1().Pods(s.namespace).Create(s.ctx, requesting("next", "nvidia.com/gpu", 1), metav1.CreateOptions{})
		return err == nil, fmt.Sprint(err)
	})
	s.waitRunning("next")
	s.delete("three", "next")
}
