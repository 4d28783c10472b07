package e2e

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/tranche-dev/tranche/api/names"
)

// A driver that limits memory by control group: the container runtime runs the hook before the
// container's program, so that the pod has its limit from the beginning.
func TestSharesLimitedByTheKernel(t *testing.T) {
	s := startAlone(t)
	s.sharePod("limited", classMemoryShare, amounts{"memory": "2000Mi"})
	pod := s.waitRunning("limited")
	assert.EqualValues(t, 2000<<20, s.memoryLimitOf(pod))
	for _, d := range s.slices(nodeA) {
		i := slices.IndexFunc(d.Spec.Devices, func(d resourceapi.Device) bool { return d.Name == s.allocated(pod, "").Device })
		if i >= 0 {
			assert.Equal(t, "kernel", *d.Spec.Devices[i].Attributes[names.AttributeIsolation].StringValue)
		}
	}

	s.restartPlugin(nodeA)
	s.sharePod("later", classMemoryShare, amounts{"memory": "1000Mi"})
	assert.EqualValues(t, 1000<<20, s.memoryLimitOf(s.waitRunning("later")))
	assert.EqualValues(t, 2000<<20, s.memoryLimitOf(pod))
	s.delete("limited", "later")
	s.waitGone("limited") // and its control group with its limit
}

// memoryLimitOf is the limit of a pod, on whichever GPU of its node; 0: none.
func (s *suite) memoryLimitOf(pod *corev1.Pod) uint64 {
	s.t.Helper()
	require.NotEmpty(s.t, pod.UID)
	for _, g := range s.machine(pod.Spec.NodeName).GPUs {
		for group, limit := range g.MemoryLimits {
			if strings.HasSuffix(group, "pod"+string(pod.UID)) || strings.HasSuffix(group, "pod"+strings.ReplaceAll(string(pod.UID), "-", "_")+".slice") {
				return limit.Hard
			}
		}
	}
	return 0
}
