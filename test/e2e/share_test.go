package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/tranche-dev/tranche/pkg/gpu"
)

// Two pods of two namespaces have half of one GPU each, and the seven others
// are full of partitions.
func TestShareHalvesOfTwoNamespacesBesidePartitions(t *testing.T) {
	s := start(t)
	other := s.anotherNamespace()
	half := amounts{"fraction": "0.5"}
	s.sharePod("mine", classFractionShare, half)
	mine := s.waitRunning("mine")
	other.sharePod("theirs", classFractionShare, half)
	theirs := other.waitRunning("theirs")
	shared := gpu.OfDevice(s.allocated(mine, "").Device)
	assert.Equal(t, shared, gpu.OfDevice(s.allocated(theirs, "").Device))
	s.requireSeesShare(mine, "main")
	s.requireSeesShare(theirs, "main")

	const small = 49
	s.gpuPods("small", small, class1g10gb)
	s.waitAllRunning(small + 1)
	assert.Equal(t, small, s.machine(nodeA).instances())
	for n := range small {
		assert.NotEqual(t, shared, gpu.OfDevice(s.allocated(s.pod(fmt.Sprintf("small-%d", n)), "").Device))
	}
	s.gpuPod("one-more", class1g10gb)
	s.waitUnschedulable("one-more")
	s.sharePod("third-half", classFractionShare, half)
	s.waitUnschedulable("third-half")

	// The GPU is cut only when nobody shares it any more.
	s.delete("mine", "third-half")
	assert.Equal(t, small, s.machine(nodeA).instances())
	s.requireSeesShare(theirs, "main")
	other.delete("theirs")
	s.waitRunning("one-more")
}

// Ten pods that name no amount fill one GPU before the next is used.
func TestShareReplicasFillOneGPUBeforeTheNext(t *testing.T) {
	s := startAtNight(t)
	const replicas = 10
	for n := range replicas {
		s.sharePod(fmt.Sprintf("replica-%d", n), classFractionShare, nil)
	}
	s.waitAllRunning(replicas)
	pools := map[string]bool{}
	for n := range replicas {
		pools[gpu.OfDevice(s.allocated(s.pod(fmt.Sprintf("replica-%d", n)), "").Device)] = true
	}
	require.Len(t, pools, 1)
	assert.Len(t, s.daemons(nodeA), replicas, "one for each claim")
	s.sharePod("eleventh", classFractionShare, nil)
	assert.NotContains(t, pools, gpu.OfDevice(s.allocated(s.waitRunning("eleventh"), "").Device))
	assert.Len(t, s.records(nodeA), replicas+1)
}

// The limit is in the environment, the daemon has it, and nobody else can reach
// that daemon.
func TestShareMemoryLimitInTheEnvironmentAndTheDaemon(t *testing.T) {
	s := startOnCluster(t)
	s.sharePod("small", classMemoryShare, amounts{"memory": "2000Mi"})
	s.sharePod("large", classMemoryShare, amounts{"memory": "16Gi", "computePercent": "30"})
	small, large := s.waitRunning("small"), s.waitRunning("large")
	assert.Equal(t, gpu.OfDevice(s.allocated(small, "").Device), gpu.OfDevice(s.allocated(large, "").Device))
	assert.Equal(t, "cooperative", s.attribute(small, "isolation"))

	for pod, want := range map[*corev1.Pod]struct{ limit, daemon, threads, portion string }{
		small: {"2000M", "1G", "", "0.02"},
		large: {"16384M", "16G", "30", "0.20"},
	} {
		env := s.env(pod, "main")
		assert.Equal(t, "0="+want.limit, env["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"], pod.Name)
		assert.Equal(t, want.portion, env["GPU_PORTION"], pod.Name)
		assert.Equal(t, want.threads, env["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"], pod.Name)
		assert.NotEmpty(t, env["CUDA_MPS_PIPE_DIRECTORY"])
		assert.Equal(t, want.daemon, s.askDaemon(pod, "main", "get_default_device_pinned_mem_limit 0"), pod.Name)
	}
	assert.Len(t, s.daemons(nodeA), 2)
	for _, pod := range []*corev1.Pod{small, large} {
		folders := strings.Fields(s.exec(pod.Namespace, pod.Name, "main", "sh", "-c", "grep -o '/run/tranche/mps[^ ]*' /proc/self/mountinfo | sort -u"))
		uid := string(s.claims(pod)[0].UID)
		for _, folder := range folders {
			assert.True(t, strings.Contains(folder, uid) || !strings.Contains(folder, "-"), "%s of %s is another claim's", folder, pod.Name)
		}
	}
}

// Two requests of one claim: each limit is on its own GPU.
func TestShareOfTwoGPUsWithDifferentLimits(t *testing.T) {
	s := startOnCluster(t)
	gpus := s.machine(nodeA).GPUs
	first := shareRequest(classMemoryShare, gpus[2].PCI, amounts{"memory": "3000Mi"})
	second := shareRequest(classMemoryShare, gpus[5].PCI, amounts{"memory": "5000Mi"})
	first.Name, second.Name = "first", "second"
	s.podWithRequests(nodeA, "both", first, second)
	pod := s.waitRunning("both")
	assert.Subset(t, s.seen(pod, "main"), []string{"/dev/nvidia2", "/dev/nvidia5"})
	assert.Len(t, s.daemons(nodeA), 1, "one for the claim")
	var limits []string
	for n := range 2 {
		limits = append(limits, s.askDaemon(pod, "main", fmt.Sprintf("get_default_device_pinned_mem_limit %d", n)))
	}
	slices.Sort(limits)
	assert.Equal(t, []string{"2G", "4G"}, limits)
	assert.NotContains(t, s.env(pod, "main"), "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "the daemon alone has the limits of several GPUs")
}

// Memory and fractions do not meet on one GPU.
func TestShareByMemoryAndByFractionOnTwoGPUs(t *testing.T) {
	s := start(t)
	s.sharePod("by-memory", classMemoryShare, amounts{"memory": "1Gi"})
	s.sharePod("by-fraction", classFractionShare, amounts{"fraction": "0.1"})
	assert.NotEqual(t, gpu.OfDevice(s.allocated(s.waitRunning("by-memory"), "").Device), gpu.OfDevice(s.allocated(s.waitRunning("by-fraction"), "").Device))
}

// Both containers of a pod, and its init container, have the share if they name
// it; a sidecar that does not sees no device and no daemon.
func TestShareIsSeenByTheContainersThatNameIt(t *testing.T) {
	s := startOnCluster(t)
	s.template("half", devices(shareRequest(classFractionShare, "", amounts{"fraction": "0.5"})))
	pod := newPod("pair", fromTemplate("half"))
	pod.Spec.NodeSelector = map[string]string{corev1.LabelHostname: nodeA}
	named := pod.Spec.Containers[0]
	sidecar, init := *named.DeepCopy(), *named.DeepCopy()
	sidecar.Name, sidecar.Resources.Claims = "sidecar", nil
	init.Name, init.Command = "init", []string{"sh", "-c", "ls /dev/nvidia*; env"}
	pod.Spec.Containers = []corev1.Container{sidecar, named}
	pod.Spec.InitContainers = []corev1.Container{init}
	s.create(pod)
	ran := s.waitRunning("pair")
	s.requireSeesShare(ran, "main")
	assert.Empty(t, s.seen(ran, "sidecar"))
	for name := range s.env(ran, "sidecar") {
		assert.NotRegexp(t, `^(TRANCHE|CUDA_MPS|GPU_PORTION|RUNAI|NVIDIA)`, name)
	}
	log := s.kubectl("-n", s.namespace, "logs", "pair", "-c", "init")
	assert.Contains(t, log, "/dev/nvidia0\n")
	assert.Contains(t, log, "GPU_PORTION=")
}
