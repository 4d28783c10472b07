package e2e

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

const (
	// packingScheduler is the default of scheduler.schedulerName.
	packingScheduler = "tranche-packing"
	// replicas is how many pods are placed. One GPU of node-a or node-c has partitions for them.
	replicas = 4
)

// smallPod is a pod with a partition that node-a and node-c have, and so many CPUs that the
// scheduler sees where such pods are.
func (s *suite) smallPod(scheduler string) *corev1.Pod {
	s.t.Helper()
	s.template("small", resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{request("gpu-partition.tranche.dev", "")}})
	node, err := s.client.CoreV1().Nodes().Get(s.ctx, nodeA, metav1.GetOptions{})
	require.NoError(s.t, err)
	pod := newPod("small", fromTemplate("small"))
	pod.Spec.SchedulerName, pod.Spec.RestartPolicy = scheduler, corev1.RestartPolicyAlways
	pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{
		corev1.ResourceCPU: *resource.NewMilliQuantity(node.Status.Allocatable.Cpu().MilliValue()/8, resource.DecimalSI),
	}
	return pod
}

// replicate runs replicas of a pod, which the scheduler spreads over nodes by default. It returns
// their nodes and their GPUs, and removes them.
func (s *suite) replicate(name string, pod *corev1.Pod) (nodes, gpus []string) {
	s.t.Helper()
	labels := map[string]string{"app": name}
	sets := s.client.AppsV1().ReplicaSets(s.namespace)
	_, err := sets.Create(s.ctx, &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: appsv1.ReplicaSetSpec{
		Replicas: ptr.To[int32](replicas),
		Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: pod.Spec},
	}}, metav1.CreateOptions{})
	require.NoError(s.t, err)
	background := metav1.DeletePropagationBackground
	defer func() {
		require.NoError(s.t, sets.Delete(s.ctx, name, metav1.DeleteOptions{PropagationPolicy: &background}))
		s.deletePods()
		s.requireNothingAllocated()
	}()
	s.waitAllRunning(replicas)
	onNodes, onGPUs := map[string]bool{}, map[string]bool{}
	running, _ := s.running()
	for _, name := range running {
		pod := s.pod(name)
		// gpu-0000-1b-00-0-mig-1g-10gb-4, gpu-0000-05-00-0-cpx-3
		gpu := strings.Join(strings.Split(s.allocated(pod, "").Device, "-")[:5], "-")
		onNodes[pod.Spec.NodeName], onGPUs[pod.Spec.NodeName+"/"+gpu] = true, true
	}
	return slices.Sorted(maps.Keys(onNodes)), slices.Sorted(maps.Keys(onGPUs))
}

// waitMutated waits until the API server applies a policy to new pods.
func (s *suite) waitMutated(what string, done func(*corev1.Pod) bool) {
	s.t.Helper()
	s.eventually(what, func() (bool, string) {
		pod, err := s.client.CoreV1().Pods(s.namespace).Create(s.ctx, s.smallPod(""), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err == nil && done(pod), fmt.Sprint(err)
	})
}

// loadScheduler loads the image of the second scheduler, which no registry serves here.
func (s *suite) loadScheduler() {
	s.t.Helper()
	out, err := s.try("cluster", "load", "--dir", s.cluster, "--kube-scheduler")
	require.NoError(s.t, err, out)
}

// The second scheduler places replicas on one node and one GPU: those that name it, and all with
// scheduler.assignment.enabled. The default scheduler spreads them.
func TestSecondSchedulerPacks(t *testing.T) {
	s := startAtNight(t)
	s.loadScheduler()
	s.set("scheduler.enabled=true")

	nodes, _ := s.replicate("default", s.smallPod(""))
	assert.Equal(t, []string{nodeA, nodeC}, nodes)
	_, gpus := s.replicate("named", s.smallPod(packingScheduler))
	assert.Len(t, gpus, 1)

	s.set("scheduler.assignment.enabled=true")
	s.waitMutated("pods with GPUs get the second scheduler", func(p *corev1.Pod) bool { return p.Spec.SchedulerName == packingScheduler })
	_, gpus = s.replicate("assigned", s.smallPod(""))
	assert.Len(t, gpus, 1)
}
