package e2e

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// One pod on an empty node sees the first GPU and its own two capabilities,
// and deleting it destroys the instance.
func TestOnePartitionOnAnEmptyNode(t *testing.T) {
	s := start(t)
	s.gpuPod("one", class1g10gb)
	pod := s.waitRunning("one")
	s.requireSees(pod, "main", s.allocated(pod, ""), "1g.10gb")
	assert.Contains(t, s.seen(pod, "main"), "/dev/nvidia0")
	s.requireInstances(1)
	s.delete("one")
	s.requireNothingLeft()
}

// A node of eight H100 takes 56 pods with 1g.10gb, then eight with 4g.40gb and
// eight with 3g.40gb beside them, then eight with whole GPUs; never one more.
func TestFillTheNode(t *testing.T) {
	s := start(t)
	const small = 56
	s.gpuPods("small", small, class1g10gb)
	s.waitAllRunning(small)
	s.requireInstances(small)
	s.requireNothingTwice()

	s.gpuPod("one-more", class1g10gb)
	s.waitUnschedulable("one-more")
	s.delete("small-17")
	s.waitRunning("one-more")
	s.requireInstances(small)
	s.requireNothingTwice()
	s.deletePods()
	s.requireNothingLeft()

	s.gpuPods("large", 8, class4g40gb)
	s.waitAllRunning(8)
	s.gpuPods("medium", 8, class3g40gb)
	s.waitAllRunning(16)
	s.requireInstances(16)
	s.requireNothingTwice()
	s.gpuPod("one-more", class1g10gb)
	s.waitUnschedulable("one-more")
	s.deletePods()
	s.requireNothingLeft()

	s.gpuPods("whole", 8, classWhole)
	s.waitAllRunning(8)
	s.requireNothingTwice()
	assert.Len(t, s.records(nodeA), 8)
	assert.Zero(t, s.machine(nodeA).instances())
	s.gpuPod("one-more", class1g10gb)
	s.waitUnschedulable("one-more")
}

// gpuPods makes pods with one device each.
func (s *suite) gpuPods(name string, count int, class string) {
	s.t.Helper()
	for n := range count {
		s.gpuPod(fmt.Sprintf("%s-%d", name, n), class)
	}
}

// requireNothingTwice checks that no device is allocated to two claims of the
// test, and that every running pod has one.
func (s *suite) requireNothingTwice() {
	s.t.Helper()
	claims, err := s.client.ResourceV1().ResourceClaims(s.namespace).List(s.ctx, metav1.ListOptions{})
	require.NoError(s.t, err)
	var devices []string
	for i := range claims.Items {
		if a := claims.Items[i].Status.Allocation; a != nil {
			for _, r := range a.Devices.Results {
				devices = append(devices, r.Pool+" "+r.Device)
			}
		}
	}
	slices.Sort(devices)
	require.Len(s.t, slices.Compact(slices.Clone(devices)), len(devices), "%v", devices)
	running, _ := s.running()
	require.Len(s.t, devices, len(running))
}
