package e2e

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/test/simulator/nvdriver"
)

// A pod's status says how the device that it holds is doing.
func TestDeviceHealthInThePodStatus(t *testing.T) {
	s := startOnCluster(t)
	pci := s.machine(nodeA).GPUs[4].PCI
	s.gpuPodOn("held", class1g10gb, pci)
	s.waitRunning("held")
	s.waitHealth("held", corev1.ResourceHealthStatusHealthy)
	s.setFaults(nvdriver.Faults{Lost: []string{pci}})
	s.waitHealth("held", corev1.ResourceHealthStatusUnhealthy)
	s.clearFaults(nodeA)
	s.waitHealth("held", corev1.ResourceHealthStatusHealthy)
}

func (s *suite) waitHealth(pod string, want corev1.ResourceHealthStatus) {
	s.t.Helper()
	s.eventually("the status of pod "+pod+" says "+string(want), func() (bool, string) {
		status := s.pod(pod).Status.ContainerStatuses[0].AllocatedResourcesStatus
		for _, resource := range status {
			if resource.Name == "claim:gpu" && len(resource.Resources) == 1 && resource.Resources[0].Health == want {
				return true, ""
			}
		}
		said, _ := s.try("kubectl", "-n", s.namespace, "get", "pod", pod, "-o", "jsonpath={.status.containerStatuses[0].allocatedResourcesStatus}")
		return false, "it says: " + said
	})
}

func TestMetricsTellWhoHoldsWhat(t *testing.T) {
	s := start(t)
	s.gpuPod("holder", class1g10gb)
	pod := s.waitRunning("holder")
	device := s.allocated(pod, "")
	claim := s.claims(pod)[0]
	gpuID := gpu.OfDevice(device.Device)

	metrics := s.metrics(nodeA)
	info := `tranche_claim_info{claim="` + claim.Name + `",container="",device="` + device.Device + `",gpu="` + gpuID + `",namespace="` + s.namespace +
		`",node="` + nodeA + `",pod="holder",profile="1g.10gb",type="mig",uuid="MIG-`
	assert.Regexp(t, `(?m)^`+regexp.QuoteMeta(info)+`[0-9a-f-]{36}"\} 1$`, metrics)
	assert.Regexp(t, `(?m)^tranche_prepared_devices\{node="`+nodeA+`",profile="1g.10gb",type="mig"\} 1$`, metrics)
	assert.Regexp(t, `(?m)^tranche_published_devices\{node="`+nodeA+`",profile="",type="gpu"\} 8$`, metrics)
	assert.Regexp(t, `(?m)^tranche_published_devices\{node="`+nodeA+`",profile="1g.10gb",type="mig"\} 56$`, metrics)
	for _, phase := range []string{"lock", "plan", "intent", "create", "cdi", "done"} {
		assert.Regexp(t, `(?m)^tranche_claim_operation_phase_duration_seconds_count\{node="`+nodeA+`",operation="prepare",phase="`+phase+`",result="Succeeded"\} [1-9]`, metrics)
	}

	assert.Regexp(t, `(?m)^tranche_free_devices\{gpu="`+gpuID+`",node="`+nodeA+`",profile="1g.10gb",type="mig"\} 6$`, metrics)
	assert.Regexp(t, `(?m)^tranche_free_devices\{gpu="`+gpuID+`",node="`+nodeA+`",profile="",type="gpu"\} 0$`, metrics)
	assert.Regexp(t, `(?m)^tranche_fragmentation_ratio\{node="`+nodeA+`",profile="",type="gpu"\} 0\.1`, metrics, "one of eight GPUs is no longer whole")
	assert.Regexp(t, `(?m)^tranche_fragmentation_ratio\{node="`+nodeA+`",profile="3g.40gb",type="mig"\} 0$`, metrics)

	s.delete("holder")
	metrics = s.metrics(nodeA)
	assert.Regexp(t, `(?m)^tranche_fragmentation_ratio\{node="`+nodeA+`",profile="",type="gpu"\} 0$`, metrics)
	assert.NotRegexp(t, `(?m)^tranche_prepared_devices\{.*\} [1-9]`, metrics)
	assert.NotContains(t, metrics, "tranche_claim_info{")
	assert.Regexp(t, `(?m)^tranche_claim_operation_phase_duration_seconds_count\{node="`+nodeA+`",operation="unprepare",phase="destroy",result="Succeeded"\} [1-9]`, metrics)
	assert.Regexp(t, `(?m)^tranche_claim_operation_duration_seconds_count\{node="`+nodeA+`",operation="unprepare",result="Succeeded"\} [1-9]`, metrics)
}

func (s *suite) metrics(node string) string {
	s.t.Helper()
	metrics, err := s.get(node, "metrics")
	require.NoError(s.t, err)
	return metrics
}

// The claim's status says what the pod got. The plugin may write it for claims
// on its own node only.
func TestClaimStatusSaysWhatItIs(t *testing.T) {
	s := start(t)
	s.gpuPod("patient", class1g10gb)
	pod := s.waitRunning("patient")
	s.eventually("the claim's device is Ready", func() (bool, string) {
		devices := s.claims(pod)[0].Status.Devices
		return len(devices) == 1 && len(devices[0].Conditions) == 1 && devices[0].Conditions[0].Status == metav1.ConditionTrue &&
			strings.Contains(string(devices[0].Data.Raw), `"profile":"1g.10gb"`), fmt.Sprint(devices)
	})
}
