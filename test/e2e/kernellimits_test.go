package e2e

import (
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/claimconfig"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/lists"
	"github.com/tranche-dev/tranche/test/simulator/nvdriver"
	"github.com/tranche-dev/tranche/test/simulator/nvtools"
)

// A driver that limits memory by control group: the container runtime runs the hook before the
// container's program, so that the pod has its limit from the beginning, and all its processes together
// have no more, wherever they are and whatever the tenant sets.
func TestSharesLimitedByTheKernel(t *testing.T) {
	s := startAlone(t)
	s.template("limited", devices(shareRequest(classMemoryShare, "", amounts{"memory": "2000Mi"})))
	tenant := newPod("limited", fromTemplate("limited"))
	tenant.Spec.NodeSelector = map[string]string{corev1.LabelHostname: nodeA}
	for name, value := range map[string]string{
		"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=80G", "CUDA_MPS_PIPE_DIRECTORY": "/tmp", "CUDA_VISIBLE_DEVICES": "all",
		"NVIDIA_VISIBLE_DEVICES": "all", "NVIDIA_DRIVER_CAPABILITIES": "all", "NVIDIA_DISABLE_REQUIRE": "1", "NVIDIA_GPU_MEMORY_LIMIT": "80Gi",
	} {
		tenant.Spec.Containers[0].Env = append(tenant.Spec.Containers[0].Env, corev1.EnvVar{Name: name, Value: value})
	}
	s.create(tenant)
	pod := s.waitRunning("limited")
	assert.Equal(t, simulatedLimit{Hard: 2000 << 20}, s.memoryLimitOf(pod), "what cannot be exceeded is guaranteed anyway")
	assert.Equal(t, "kernel", *s.shareDevice(pod).Attributes[names.AttributeIsolation].StringValue)

	container := pod.Spec.Containers[0].Name
	first := s.idOnNode(s.processes(pod, container)[0])
	require.ErrorContains(t, s.allocate(pod, first, 2001), "out of memory")
	require.NoError(t, s.allocate(pod, first, 1500))
	s.exec(s.namespace, "limited", container, "sh", "-c", "sleep 1000000 >/dev/null 2>&1 &") // forks, and runs another program
	all := lists.Map(s.processes(pod, container), s.idOnNode)
	require.Greater(t, len(all), 1)
	second := all[len(all)-1]
	require.ErrorContains(t, s.allocate(pod, second, 501), "out of memory", "both together")
	back := s.moveToChild(pod, second)
	require.ErrorContains(t, s.allocate(pod, second, 501), "out of memory", "in a control group of its own below the container's")
	require.NoError(t, s.allocate(pod, second, 500))
	require.ErrorContains(t, s.allocate(pod, second, 1), "out of memory")
	back()

	s.killKubeletAndContainerd()
	assert.Equal(t, pod.Status.ContainerStatuses[0].ContainerID, s.pod("limited").Status.ContainerStatuses[0].ContainerID, "the container goes on")
	assert.EqualValues(t, 2000<<20, s.memoryLimitOf(pod).Hard)
	require.ErrorContains(t, s.allocate(pod, first, 1), "out of memory", "both still have all of it")
	for _, process := range all {
		require.NoError(t, s.allocate(pod, process, 0))
	}
	require.ErrorContains(t, s.allocate(pod, first, 2001), "out of memory")

	s.restartPlugin(nodeA)
	s.sharePod("later", classMemoryShare, amounts{"memory": "1000Mi"})
	assert.EqualValues(t, 1000<<20, s.memoryLimitOf(s.waitRunning("later")).Hard)
	assert.EqualValues(t, 2000<<20, s.memoryLimitOf(pod).Hard)
	s.delete("limited", "later")
	s.waitGone("limited") // and its control group with its limit

	s.burst()
}

// killKubeletAndContainerd kills both on node-a, while its containers run, and waits until they work again.
func (s *suite) killKubeletAndContainerd() {
	s.t.Helper()
	killed := time.Now()
	for _, restart := range []string{"restart-containerd", "restart-kubelet"} {
		s.onHost("cluster", restart, "--kill", "--dir", s.cluster, "--node", nodeA)
	}
	s.registeredAfter(killed)
}

// burst checks limits above requests: what the profile allows is allowed, and more is reduced.
func (s *suite) burst() {
	t := s.t
	s.burstPod("no-burst", 1000, 2000)
	assert.EqualValues(t, 1000<<20, s.memoryLimitOf(s.waitRunning("no-burst")).Hard)
	s.waitPodEvent("no-burst", names.EventShareLimitReduced, "is 1000 MiB, not the 2000 MiB of its configuration")
	s.delete("no-burst")
	s.waitGone("no-burst")

	s.followProfile(nodeA, "burst", `{gpus: {vendor: nvidia}, sharing: {maxMemoryLimitPercent: 200}}`)
	s.waitFollows(nodeA, "burst")
	s.burstPod("burst", 1000, 1500)
	pod := s.waitRunning("burst")
	assert.Equal(t, simulatedLimit{Soft: 1000 << 20, Hard: 1500 << 20}, s.memoryLimitOf(pod))
	assert.EqualValues(t, 200, *s.shareDevice(pod).Attributes[names.AttributeMaxMemoryLimitPercent].IntValue)
	process := s.idOnNode(s.processes(pod, pod.Spec.Containers[0].Name)[0])
	require.ErrorContains(t, s.allocate(pod, process, 1501), "out of memory")
	require.NoError(t, s.allocate(pod, process, 1500))
	require.NoError(t, s.allocate(pod, process, 0))
	s.burstPod("too-much", 1000, 4000)
	assert.Equal(t, simulatedLimit{Soft: 1000 << 20, Hard: 2000 << 20}, s.memoryLimitOf(s.waitRunning("too-much")))
	s.waitPodEvent("too-much", names.EventShareLimitReduced, "the profile of the node allows 200 %")
	s.delete("burst", "too-much")
	s.waitGone("burst")
}

// burstPod makes a pod on node-a with a share of so many MiB, and with a higher limit.
func (s *suite) burstPod(name string, request, limit int64) {
	s.t.Helper()
	claim := devices(shareRequest(classMemoryShare, "", amounts{"memory": fmt.Sprintf("%dMi", request)}))
	claim.Config = []resourceapi.DeviceClaimConfiguration{claimconfig.New(limit)}
	s.template(name, claim)
	pod := newPod(name, fromTemplate(name))
	pod.Spec.NodeSelector = map[string]string{corev1.LabelHostname: nodeA}
	s.create(pod)
}

// shareDevice is the share of a pod, as it is published.
func (s *suite) shareDevice(pod *corev1.Pod) resourceapi.Device {
	s.t.Helper()
	name := s.allocated(pod, "").Device
	for _, slice := range s.slices(pod.Spec.NodeName) {
		if i := slices.IndexFunc(slice.Spec.Devices, func(d resourceapi.Device) bool { return d.Name == name }); i >= 0 {
			return slice.Spec.Devices[i]
		}
	}
	require.Fail(s.t, "not published", name)
	return resourceapi.Device{}
}

// memoryLimitOf is the limit of a pod, on whichever GPU of its node; zero: none.
func (s *suite) memoryLimitOf(pod *corev1.Pod) simulatedLimit {
	s.t.Helper()
	require.NotEmpty(s.t, pod.UID)
	for _, g := range s.machine(pod.Spec.NodeName).GPUs {
		for group, limit := range g.MemoryLimits {
			if strings.HasSuffix(group, "pod"+string(pod.UID)) || strings.HasSuffix(group, "pod"+strings.ReplaceAll(string(pod.UID), "-", "_")+".slice") {
				return limit
			}
		}
	}
	return simulatedLimit{}
}

// allocate has a process of a pod, by its id on the node, allocate memory of the pod's GPU, as the simulated kernel driver counts
// it; 0: it frees all.
func (s *suite) allocate(pod *corev1.Pod, process, mib int) error {
	s.t.Helper()
	out, err := s.tryOnNode(pod.Spec.NodeName, path.Join(simulateRoot, nvtools.DriverBin, "allocate-gpu-memory"),
		gpu.AddressOf(s.allocated(pod, "").Device), strconv.Itoa(process), strconv.Itoa(mib))
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

// moveToChild moves a process into a new control group below that of its container, and returns what
// moves it back.
func (s *suite) moveToChild(pod *corev1.Pod, process int) (back func()) {
	s.t.Helper()
	groups := s.onNode(pod.Spec.NodeName, "cat", fmt.Sprintf("/proc/%d/cgroup", process))
	_, group, found := strings.Cut("\n"+groups, "\n0::")
	require.True(s.t, found, groups)
	group = filepath.Join(nvdriver.Groups(simulateRoot), strings.Fields(group)[0])
	child := path.Join(group, "child")
	s.onNode(pod.Spec.NodeName, "sh", "-c", fmt.Sprintf("mkdir %[1]s && echo %[2]d >%[1]s/cgroup.procs", child, process))
	return func() {
		s.t.Helper()
		s.onNode(pod.Spec.NodeName, "sh", "-c", fmt.Sprintf("echo %d >%s/cgroup.procs && rmdir %s", process, group, child))
	}
}
