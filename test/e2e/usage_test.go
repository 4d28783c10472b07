package e2e

import (
	"encoding/json"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/usage"
	"github.com/tranche-dev/tranche/test/simulator/amdgpu"
	"github.com/tranche-dev/tranche/test/simulator/load"
	"github.com/tranche-dev/tranche/test/simulator/nvdriver"
)

// usageOf returns the samples of a metric of a node that name a pod of the test.
func (s *suite) usageOf(node, metric, pod string) (lines []string) {
	s.t.Helper()
	of := regexp.MustCompile(`^` + metric + `\{.*namespace="` + s.namespace + `".*pod="` + pod + `"`)
	for _, line := range strings.Split(s.metrics(node), "\n") {
		if of.MatchString(line) {
			lines = append(lines, line)
		}
	}
	return lines
}

// waitUsage waits until a metric of a pod of node-a has a sample.
func (s *suite) waitUsage(metric, pod, value string) (line string) {
	s.t.Helper()
	return s.waitUsageOn(nodeA, metric, pod, value)
}

// waitUsageOn is waitUsage for any node.
func (s *suite) waitUsageOn(node, metric, pod, value string) (line string) {
	s.t.Helper()
	s.eventually(metric+" of pod "+pod+" is "+value, func() (bool, string) {
		lines := s.usageOf(node, metric, pod)
		if len(lines) == 1 && strings.HasSuffix(lines[0], " "+value) {
			line = lines[0]
			return true, ""
		}
		return false, strings.Join(lines, "\n")
	})
	return line
}

// What two partitions of one GPU use is told of the pods that hold them, with their containers,
// and ends with the claims.
func TestUsageOfPartitionsOfOneGPU(t *testing.T) {
	s := startOnCluster(t)
	pci := s.machine(nodeA).GPUs[2].PCI
	s.setFaults(nvdriver.Faults{Load: []load.Load{{GPU: pci, Compute: 60, Memory: 50}}})
	s.gpuPodOn("one", class1g10gb, pci)
	s.gpuPodOn("two", class1g10gb, pci)
	device := s.allocated(s.waitRunning("one"), "")
	s.waitRunning("two")

	line := s.waitUsage("tranche_compute_active_ratio", "one", "0.6")
	for _, label := range []string{
		`container="main"`, `device="` + device.Device + `"`, `node="` + nodeA + `"`, `profile="1g.10gb"`, `type="mig"`, `parent_uuid="GPU-`, `uuid="MIG-`,
	} {
		assert.Contains(t, line, label)
	}
	s.waitUsage("tranche_compute_active_ratio", "two", "0.6")
	s.setFaults(nvdriver.Faults{Load: []load.Load{{GPU: pci}}})
	s.waitUsage("tranche_compute_active_ratio", "one", "0")
	s.waitUsage("tranche_memory_used_bytes", "one", "0")

	s.delete("one")
	assert.Empty(t, s.usageOf(nodeA, "tranche_[a-z_]+", "one"), "the series end with the claim")
	assert.NotEmpty(t, s.usageOf(nodeA, "tranche_memory_used_bytes", "two"))
}

// A pod that begins to use a claim of another is known: what both use is told of none, and goes to
// the second when the first has ended. The kubelet does not prepare the claim again.
func TestUsageOfAClaimThatPodsShare(t *testing.T) {
	s := startOnCluster(t)
	_, err := s.client.ResourceV1().ResourceClaims(s.namespace).Create(s.ctx, &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Name: "shared"},
		Spec: resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{
			Requests: []resourceapi.DeviceRequest{request(class1g10gb, s.machine(nodeA).GPUs[3].PCI)},
		}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	s.create(newPod("first", fromClaim("shared")))
	s.waitRunning("first")
	s.waitUsage("tranche_memory_used_bytes", "first", "0")
	s.create(newPod("second", fromClaim("shared")))
	s.waitRunning("second")
	s.waitUsage("tranche_memory_used_bytes", "", "0")
	assert.Empty(t, s.usageOf(nodeA, "tranche_memory_used_bytes", "first"))
	s.delete("first")
	assert.Contains(t, s.waitUsage("tranche_memory_used_bytes", "second", "0"), `container="main"`)
}

// What processes use is told of the pods that they belong to: those of shares by the driver's list of
// processes, those of AMD partitions by KFD's, and of a whole GPU what the GPU says.
func TestUsageByPod(t *testing.T) {
	s := startOnCluster(t)
	gpus, amd := s.machine(nodeA).GPUs, s.amdGPUs()[2]
	for name, memory := range map[string]string{"little": "8Gi", "much": "30Gi"} {
		s.sharePodAt(nodeA, name, gpus[1].PCI, classMemoryShare, amounts{"memory": memory})
	}
	s.gpuPodOn("whole", classWhole, gpus[6].PCI)
	s.gpuPodAt(nodeC, "first", classCPX, amd)
	s.gpuPodAt(nodeC, "second", classCPX, amd)
	s.waitRunning("little", "much", "whole", "first", "second")
	pid := func(name string) int { return s.idOnNode(s.processes(s.pod(name), "main")[0]) }
	using := func(percent, gib int) load.Use { return load.Use{Compute: percent, MemoryMiB: gib << 10} }
	s.setFaults(nvdriver.Faults{Processes: []nvdriver.Process{
		{GPU: gpus[1].PCI, PID: pid("little"), MPS: true, Use: using(10, 2)},
		{GPU: gpus[1].PCI, PID: pid("much"), MPS: true, Use: using(60, 16)},
		{GPU: gpus[6].PCI, PID: pid("whole"), Use: using(40, 32)},
	}})
	partition := func(name string) *int {
		index, err := strconv.Atoi(strings.TrimPrefix(s.allocated(s.pod(name), "").Device, gpu.NameOf(amd)+"-cpx-"))
		require.NoError(t, err)
		return &index
	}
	s.byHandOn(nodeC, action{Faults: &amdgpu.Faults{Processes: []amdgpu.Process{
		{PID: pid("first"), GPUs: []string{amd}, Partition: partition("first"), Use: using(50, 4)},
		{PID: pid("second"), GPUs: []string{amd}, Partition: partition("second"), Use: using(0, 8)},
	}}})

	const used, compute = names.MetricMemoryUsed, names.MetricComputeActive
	assert.Contains(t, s.waitUsage(used, "little", "2.147483648e+09"), `type="share"`)
	assert.Contains(t, s.waitUsage(used, "much", "1.7179869184e+10"), `container="main"`)
	assert.Empty(t, s.usageOf(nodeA, names.MetricUtilization, "much"), "of clients of MPS, the driver does not say it")
	assert.Contains(t, s.waitUsage(used, "whole", "3.4359738368e+10"), `type="gpu"`)
	s.waitUsage(names.MetricUtilization, "whole", "0.4")
	assert.Contains(t, s.waitUsageOn(nodeC, used, "first", "4.294967296e+09"), `profile="cpx"`)
	s.waitUsageOn(nodeC, compute, "first", "0.5")
	s.waitUsageOn(nodeC, used, "second", "8.589934592e+09")
	s.waitUsageOn(nodeC, compute, "second", "0")

	var told usage.PodList
	require.NoError(t, json.Unmarshal([]byte(s.kubectl("tranche", "top", "pods", "-n", s.namespace, "-o", "json")), &told))
	memory := map[string]float64{}
	for _, pod := range told.Items {
		if pod.MemoryUsed != nil {
			memory[pod.Name] = *pod.MemoryUsed / (1 << 30)
		}
	}
	assert.Equal(t, map[string]float64{"little": 2, "much": 16, "whole": 32, "first": 4, "second": 8}, memory)

	s.delete("much")
	assert.Empty(t, s.usageOf(nodeA, "tranche_[a-z_]+", "much"), "the series end with the claim")
	assert.NotEmpty(t, s.usageOf(nodeA, used, "little"))
}
