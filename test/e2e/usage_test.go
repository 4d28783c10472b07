package e2e

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/test/simulator/load"
	"github.com/tranche-dev/tranche/test/simulator/nvdriver"
)

// usageOf returns the samples of a metric that name a pod of the test.
func (s *suite) usageOf(metric, pod string) (lines []string) {
	s.t.Helper()
	of := regexp.MustCompile(`^` + metric + `\{.*namespace="` + s.namespace + `".*pod="` + pod + `"`)
	for _, line := range strings.Split(s.metrics(nodeA), "\n") {
		if of.MatchString(line) {
			lines = append(lines, line)
		}
	}
	return lines
}

// waitUsage waits until a metric of a pod has a sample.
func (s *suite) waitUsage(metric, pod, value string) (line string) {
	s.t.Helper()
	s.eventually(metric+" of pod "+pod+" is "+value, func() (bool, string) {
		lines := s.usageOf(metric, pod)
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
	assert.Empty(t, s.usageOf("tranche_[a-z_]+", "one"), "the series end with the claim")
	assert.NotEmpty(t, s.usageOf("tranche_memory_used_bytes", "two"))
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
	assert.Empty(t, s.usageOf("tranche_memory_used_bytes", "first"))
	s.delete("first")
	assert.Contains(t, s.waitUsage("tranche_memory_used_bytes", "second", "0"), `container="main"`)
}
