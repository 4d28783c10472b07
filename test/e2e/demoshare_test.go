package e2e

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/tranche-dev/tranche/pkg/gpu"
)

// Two pods of two namespaces have half of the same GPU each.
func checkShareHalfGPU(s *suite, pods map[string]*corev1.Pod) {
	mine, theirs := pods["mine"], s.demoPods("demo-sharing-half-gpu-other")["theirs"]
	require.NotNil(s.t, theirs)
	assert.Equal(s.t, gpu.OfDevice(s.allocated(mine, "").Device), gpu.OfDevice(s.allocated(theirs, "").Device))
	for _, pod := range []*corev1.Pod{mine, theirs} {
		s.requireSeesShare(pod, "main")
		assert.Equal(s.t, "0.50", s.env(pod, "main")["GPU_PORTION"])
	}
	assert.NotEqual(s.t, s.env(mine, "main")["CUDA_MPS_PIPE_DIRECTORY"], "")
	assert.Len(s.t, s.daemons(nodeA), 2)
}

// The limit is in the pod's environment, and the daemon, which the pod asked, has
// told it.
func checkShareMemory(s *suite, pods map[string]*corev1.Pod) {
	pod := pods["small"]
	s.requireSeesShare(pod, "main")
	assert.Equal(s.t, "0=2000M", s.env(pod, "main")["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"])
	s.eventually("the daemon has answered the pod", func() (bool, string) {
		log := s.kubectl("-n", pod.Namespace, "logs", pod.Name)
		lines := strings.Split(strings.TrimSpace(log), "\n")
		return strings.HasPrefix(lines[len(lines)-1], "1G"), log
	})
}

// The second container has half a GPU, the first sees nothing.
func checkShareContainer(s *suite, pods map[string]*corev1.Pod) {
	pod := pods["pair"]
	s.requireSeesShare(pod, "gpu-workload")
	assert.Empty(s.t, s.seen(pod, "sidecar"))
	for name := range s.env(pod, "sidecar") {
		assert.NotRegexp(s.t, "^(TRANCHE|CUDA_MPS|GPU_PORTION|RUNAI|NVIDIA)", name)
	}
}

// The init container had what the main container has.
func checkShareInitContainer(s *suite, pods map[string]*corev1.Pod) {
	pod := pods["prepared"]
	s.requireSeesShare(pod, "main")
	log := func(container string) string { // each has device nodes of its own, perhaps of another minute
		return regexp.MustCompile(`\d\d:\d\d`).ReplaceAllString(s.kubectl("-n", pod.Namespace, "logs", pod.Name, "-c", container), "")
	}
	assert.Contains(s.t, log("prepare"), "GPU_PORTION=0.50")
	s.eventually("the main container says the same", func() (bool, string) {
		said := log("main")
		return said == log("prepare"), said
	})
}

// Halves of two GPUs are in one container, with one daemon for both.
func checkShareTwoGPUs(s *suite, pods map[string]*corev1.Pod) {
	pod := pods["two-halves"]
	results := s.claims(pod)[0].Status.Allocation.Devices.Results
	require.Len(s.t, results, 2)
	assert.NotEqual(s.t, gpu.OfDevice(results[0].Device), gpu.OfDevice(results[1].Device))
	assert.Len(s.t, s.seen(pod, "main"), len(commonNodes)+2)
	env := s.env(pod, "main")
	assert.NotEmpty(s.t, env["CUDA_MPS_PIPE_DIRECTORY"])
	assert.NotContains(s.t, env, "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT")
	assert.Len(s.t, s.daemons(nodeA), 1)
	for n := range 2 {
		assert.Regexp(s.t, `^\d+[MG]$`, s.askDaemon(pod, "main", fmt.Sprintf("get_default_device_pinned_mem_limit %d", n)))
	}
}

// Ten pods fill one GPU, and the eleventh begins the next.
func checkShareReplicas(s *suite, _ map[string]*corev1.Pod) {
	const namespace = "demo-sharing-replicas"
	gpus := func(count int) map[string]int {
		found := map[string]int{}
		s.eventually(fmt.Sprintf("%d pods run", count), func() (bool, string) {
			pods := s.demoPods(namespace)
			clear(found)
			for _, pod := range pods {
				found[gpu.OfDevice(s.allocated(pod, "").Device)]++
			}
			return len(pods) == count, fmt.Sprintf("there are %d", len(pods))
		})
		return found
	}
	first := gpus(10)
	require.Len(s.t, first, 1)
	s.kubectl("-n", namespace, "scale", "deployment", "notebooks", "--replicas=11")
	second := gpus(11)
	require.Len(s.t, second, 2)
	for pool := range first {
		assert.Equal(s.t, 10, second[pool])
	}
}

// Two pods have one MIG partition, which the last of them destroys.
func checkShareMIG(s *suite, pods map[string]*corev1.Pod) {
	first, second := pods["first"], pods["second"]
	assert.Equal(s.t, s.allocated(first, "").Device, s.allocated(second, "").Device)
	s.requireSeesShare(first, "main")
	s.requireSeesShare(second, "main")
	assert.Equal(s.t, 1, s.machine(nodeA).instances())
	s.kubectl("-n", first.Namespace, "delete", "pod", first.Name)
	assert.Equal(s.t, 1, s.machine(nodeA).instances())
	s.requireSeesShare(second, "main")
}

// Two pods have one daemon, and each its own limits.
func checkShareMPS(s *suite, pods map[string]*corev1.Pod) {
	first, second := pods["first"], pods["second"]
	assert.Equal(s.t, gpu.OfDevice(s.allocated(first, "").Device), gpu.OfDevice(s.allocated(second, "").Device))
	for _, pod := range []*corev1.Pod{first, second} {
		s.requireSeesShare(pod, "main")
		env := s.env(pod, "main")
		assert.Equal(s.t, "0=16384M", env["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"])
		assert.Equal(s.t, "40", env["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"])
	}
	assert.Len(s.t, s.daemons(nodeA), 1)
}

// The limit is above the request.
func checkShareBurst(s *suite, pods map[string]*corev1.Pod) {
	pod := pods["burst"]
	s.requireSeesShare(pod, "main")
	assert.Equal(s.t, "0=32768M", s.env(pod, "main")["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"])
	s.eventually("the claim's status has the limit", func() (bool, string) {
		devices := s.claims(pod)[0].Status.Devices
		if len(devices) == 0 || devices[0].Data == nil {
			return false, "nothing"
		}
		return strings.Contains(string(devices[0].Data.Raw), `"memoryLimit":"32Gi"`), string(devices[0].Data.Raw)
	})
}

// Two pods that ask for nvidia.com/gpu: 1 have the same GPU.
func checkShareNvidiaGPU(s *suite, pods map[string]*corev1.Pod) {
	first, second := pods["first"], pods["second"]
	assert.Equal(s.t, s.allocated(first, "").Device, s.allocated(second, "").Device)
	s.requireSeesShare(first, "main")
	s.requireSeesShare(second, "main")
	assert.Equal(s.t, nodeA, first.Spec.NodeName)
}

func checkShareNvidiaGPUShared(s *suite, pods map[string]*corev1.Pod) {
	s.requireSeesShare(pods["unchanged"], "main")
}

// Three shares are allocated, and a fourth one is refused.
func checkShareQuota(s *suite, _ map[string]*corev1.Pod) {
	const namespace = "demo-sharing-quota"
	s.eventually("three pods run", func() (bool, string) {
		return len(s.demoPods(namespace)) == 3, "there are fewer"
	})
	s.waitQuota(namespace, "three-shares", "requests.nvidia.com/gpu.shared", 3)
	s.requireQuotaRefuses("sharing-quota", namespace, "three-shares")
}
