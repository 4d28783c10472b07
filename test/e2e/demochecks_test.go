package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/gpu"
)

// Four containers have the four partitions of one GPU, which is full.
func checkOneGPU(s *suite, pods map[string]*corev1.Pod) {
	pod := pods["four"]
	gpus := map[string]bool{}
	for container, profile := range map[string]string{"train": "3g.40gb", "evaluate": "2g.20gb", "serve": "1g.10gb", "watch": "1g.10gb"} {
		device := s.allocated(pod, container)
		s.requireSees(pod, container, device, profile)
		gpus[gpu.OfDevice(device.Device)] = true
	}
	assert.Len(s.t, gpus, 1)
	assert.Equal(s.t, 4, s.machine(nodeA).instances())
}

// A whole GPU while there is one, half of one when each holds something.
func checkFirstAvailable(s *suite, pods map[string]*corev1.Pod) {
	s.requireSees(pods["flexible"], "main", s.allocated(pods["flexible"], "gpu/whole"), "gpu")

	const namespace = "demo-first-available"
	folder := filepath.Join(repository, "demo", "first-available")
	for _, test := range []struct{ occupied, request, profile string }{
		{class3g40gb, "gpu/larger-half", "4g.40gb"},
		{class4g40gb, "gpu/smaller-half", "3g.40gb"},
	} {
		s.kubectl("delete", "--wait", "-n", namespace, "pod", "flexible")
		s.deletePods()
		for n, g := range s.machine(nodeA).GPUs {
			s.gpuPodOn(fmt.Sprintf("occupier-%d", n), test.occupied, g.PCI)
		}
		s.waitAllRunning(8)
		s.kubectl("apply", "-f", folder)
		pod := s.demoPods(namespace)["flexible"]
		s.requireSees(pod, "main", s.allocated(pod, test.request), test.profile)
	}
	s.deletePods()
}

// waitQuota waits until a quota has counted what is used: each claim once.
func (s *suite) waitQuota(namespace, name string, resource corev1.ResourceName, want int64) {
	s.t.Helper()
	s.eventually(fmt.Sprintf("quota %s counts %d", name, want), func() (bool, string) {
		quota, err := s.client.CoreV1().ResourceQuotas(namespace).Get(s.ctx, name, metav1.GetOptions{})
		require.NoError(s.t, err)
		used := quota.Status.Used[resource]
		return used.Value() == want, used.String()
	})
}

// Three partitions are allocated, and a fourth one is refused.
func checkQuota(s *suite, _ map[string]*corev1.Pod) {
	const namespace = "demo-quota"
	s.eventually("three pods run", func() (bool, string) {
		return len(s.demoPods(namespace)) == 3, "there are fewer"
	})
	assert.Equal(s.t, 3, s.machine(nodeA).instances())
	s.waitQuota(namespace, "three-partitions", "requests.nvidia.com/mig-1g.10gb", 3)
	s.requireQuotaRefuses("quota", namespace, "three-partitions")

	// Every class is an extended resource, too. The pod itself is no claim; the
	// one that the scheduler makes for it is refused.
	pod := newPod("dodge")
	pod.Spec.Containers[0].Resources.Limits = corev1.ResourceList{"deviceclass.resource.kubernetes.io/gpu-mig.tranche.dev": resource.MustParse("1")}
	_, err := s.client.CoreV1().Pods(namespace).Create(s.ctx, pod, metav1.CreateOptions{})
	require.NoError(s.t, err)
	s.eventually("the scheduler is refused", func() (bool, string) {
		said, err := s.try("kubectl", "-n", namespace, "describe", "pod", "dodge")
		return err == nil && strings.Contains(said, "exceeded quota: three-partitions"), said
	})
	assert.Equal(s.t, 3, s.machine(nodeA).instances())
}

// requireQuotaRefuses checks that a quota that is used up refuses the demo's
// examples, and a claim by any class, unless no GPU here has what it stands for.
func (s *suite) requireQuotaRefuses(demo, namespace, quota string) {
	s.t.Helper()
	refused, err := filepath.Glob(filepath.Join(repository, "demo", demo, "refused", "*.yaml"))
	require.NoError(s.t, err)
	readme, err := os.ReadFile(filepath.Join(repository, "demo", demo, "README.md"))
	require.NoError(s.t, err)
	assert.Equal(s.t, len(refused), strings.Count(string(readme), "kubectl create -f demo/"+demo+"/refused/"))
	for _, file := range refused {
		out, err := s.try("kubectl", "create", "-f", file)
		require.Error(s.t, err, "%s: %s", file, out)
		assert.Contains(s.t, out, "exceeded quota: "+quota, file)
	}

	offered := s.offered()
	classes, err := s.client.ResourceV1().DeviceClasses().List(s.ctx, metav1.ListOptions{})
	require.NoError(s.t, err)
	tried := 0
	for i := range classes.Items {
		class := classes.Items[i].Name
		profile, isProfile := strings.CutPrefix(class, "gpu-mig-")
		if isProfile && !offered[strings.TrimSuffix(profile, ".tranche.dev")] || class == "gpu-monitor.tranche.dev" { // it holds nothing
			continue
		}
		tried++
		_, err := s.client.ResourceV1().ResourceClaims(namespace).Create(s.ctx, &resourceapi.ResourceClaim{
			ObjectMeta: metav1.ObjectMeta{Name: "dodge"},
			Spec:       resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{request(class, "")}}},
		}, dryCreate)
		assert.True(s.t, apierrors.IsForbidden(err), "a claim by class %s gets by the quota: %v", class, err)
	}
	assert.GreaterOrEqual(s.t, tried, 19, "the general classes and those of an H100")
}

// offered lists, in the words of class names, the profiles that the nodes publish.
func (s *suite) offered() map[string]bool {
	s.t.Helper()
	found := map[string]bool{}
	for _, slice := range s.slices(nodeA) {
		for i := range slice.Spec.Devices {
			if profile, ok := slice.Spec.Devices[i].Attributes["profile"]; ok {
				found[gpu.ProfileSlug(*profile.StringValue)] = true
			}
		}
	}
	require.NotEmpty(s.t, found)
	return found
}

// One pod has all GPUs of its node, and nobody has anything else there.
func checkAllGPUs(s *suite, pods map[string]*corev1.Pod) {
	pod := pods["all-gpus"]
	results := s.claims(pod)[0].Status.Allocation.Devices.Results
	gpus := len(s.amdGPUs())
	if pod.Spec.NodeName != nodeC {
		gpus = len(s.machine(pod.Spec.NodeName).GPUs)
	}
	require.Len(s.t, results, gpus)
	for _, device := range results {
		assert.Equal(s.t, gpu.OfDevice(device.Device), device.Device, "a partition")
	}
	s.requireSeesEveryGPU(pod)
	assert.Len(s.t, devicesIn(s.env(pod, "main")), gpus)
	s.gpuPodAt(pod.Spec.NodeName, "another", classWhole, "")
	s.waitUnschedulable("another")
	s.deletePods()
}

func checkLinkedGPUs(s *suite, pods map[string]*corev1.Pod) {
	eight, err := s.client.CoreV1().Pods("demo-linked-gpus").Get(s.ctx, "eight", metav1.GetOptions{})
	require.NoError(s.t, err)
	for pod, count := range map[*corev1.Pod]int{pods["pair"]: 2, eight: 8} {
		groups := map[string]string{}
		for _, slice := range s.slices(pod.Spec.NodeName) {
			for _, d := range slice.Spec.Devices {
				groups[d.Name] = ptr.Deref(d.Attributes[names.AttributeLinkGroup].StringValue, "")
			}
		}
		results := s.claims(pod)[0].Status.Allocation.Devices.Results
		require.Len(s.t, results, count)
		for _, device := range results {
			assert.NotEmpty(s.t, groups[device.Device], device.Device)
			assert.Equal(s.t, groups[results[0].Device], groups[device.Device], device.Device)
		}
	}
}

// monitorNode is by which monitors see the MIG partitions of all GPUs.
const monitorNode = "/dev/nvidia-caps/nvidia-cap2"

// requireSeesEveryGPU checks that a pod sees the device nodes of all GPUs of its node. On an NVIDIA node it sees
// others, too.
func (s *suite) requireSeesEveryGPU(pod *corev1.Pod, others ...string) {
	s.t.Helper()
	if pod.Spec.NodeName == nodeC {
		s.requireWatchesAMD(pod)
		return
	}
	want := slices.Concat(commonNodes, others)
	for n := range s.machine(pod.Spec.NodeName).GPUs {
		want = append(want, fmt.Sprintf("/dev/nvidia%d", n))
	}
	slices.Sort(want)
	assert.Equal(s.t, want, s.seen(pod, "main"), pod.Spec.NodeName)
}

// The monitors see all GPUs of their nodes, and nobody notices.
func checkAdminAccess(s *suite, pods map[string]*corev1.Pod) {
	s.eventually("there is a monitor on each node", func() (bool, string) {
		pods = s.demoPods("demo-admin-access")
		return len(pods) == len(s.nodes), fmt.Sprintf("there are %d pods", len(pods))
	})
	seen := func() {
		for _, pod := range pods {
			s.requireSeesEveryGPU(pod, monitorNode)
		}
	}
	before := s.machine(nodeA)
	seen()

	// Beside it, a partition and seven whole GPUs are allocated, and more of the
	// eighth.
	s.gpuPod("worker", class1g10gb)
	worker := s.waitRunning("worker")
	held := s.allocated(worker, "")
	s.requireSees(worker, "main", held, "1g.10gb")
	s.gpuPods("whole", 7, classWhole)
	s.waitAllRunning(8)
	s.gpuPod("beside", class3g40gb)
	assert.Equal(s.t, gpu.OfDevice(held.Device), gpu.OfDevice(s.allocated(s.waitRunning("beside"), "").Device))
	seen()

	// Monitors that go leave everything as it is.
	during := s.machine(nodeA)
	require.NotEqual(s.t, before, during)
	s.kubectl("-n", "demo-admin-access", "delete", "daemonset", "monitor", "--cascade=foreground")
	s.eventually("the monitors are gone", func() (bool, string) {
		records := s.records(nodeA)
		return len(records) == 9, fmt.Sprintf("the ledger knows %d claims", len(records))
	})
	assert.Equal(s.t, during, s.machine(nodeA))
	s.requireSees(worker, "main", held, "1g.10gb")
	s.deletePods()
}

func checkNotebook(s *suite, pods map[string]*corev1.Pod) {
	s.requireSees(pods["notebook"], "main", s.allocated(pods["notebook"], ""), "1g.10gb")
}

func checkJob(s *suite, pods map[string]*corev1.Pod) {
	require.Len(s.t, pods, 2)
	devices := map[string]bool{}
	for _, pod := range pods {
		device := s.allocated(pod, "")
		s.requireSees(pod, "main", device, "1g.10gb")
		devices[device.Device] = true
	}
	assert.Len(s.t, devices, 2)
	for name := range pods {
		s.exec("demo-job", name, "main", "touch", "/done")
	}
}

func checkVLLM(s *suite, pods map[string]*corev1.Pod) {
	require.Len(s.t, pods, 1)
	for _, pod := range pods {
		s.requireSees(pod, "main", s.allocated(pod, ""), "3g.40gb")
	}
}

// There is no CUDA here and no registry: the pod gets its GPU.
func checkVectorAdd(s *suite, pods map[string]*corev1.Pod) {
	require.Len(s.t, pods, 1)
	for _, pod := range pods {
		s.requireSees(pod, "main", s.allocated(pod, ""), "gpu")
	}
}
