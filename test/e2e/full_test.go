package e2e

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/tranche-dev/tranche/pkg/gpu"
)

// 1g.20gb has one seventh of a GPU and a quarter of its memory: four fill a
// GPU, 32 the node.
func TestFillTheNodeWithDoubleMemory(t *testing.T) {
	s := start(t)
	const class = "gpu-mig-1g-20gb.tranche.dev"
	s.gpuPods("wide", 32, class)
	s.waitAllRunning(32)
	s.requireInstances(32)
	s.requireNothingTwice()
	for _, g := range s.machine(nodeA).GPUs {
		assert.Len(t, g.Instances, 4, g.PCI)
	}
	s.gpuPod("one-more", class)
	s.waitUnschedulable("one-more")
	// The seventh of the computing power that four leave on a GPU has no memory.
	s.gpuPod("small", class1g10gb)
	s.waitUnschedulable("small")
}

// Eight claims of four partitions each, tied to one GPU, fill eight GPUs.
func TestFillGPUsWithMatchAttribute(t *testing.T) {
	s := start(t)
	devices := resourceapi.DeviceClaim{}
	requests := []string{"a", "b", "c", "d"}
	for n, class := range []string{class3g40gb, "gpu-mig-2g-20gb.tranche.dev", class1g10gb, class1g10gb} {
		devices.Requests = append(devices.Requests, resourceapi.DeviceRequest{
			Name: requests[n], Exactly: &resourceapi.ExactDeviceRequest{DeviceClassName: class},
		})
	}
	parent := resourceapi.FullyQualifiedName("gpu.tranche.dev/parentUUID")
	devices.Constraints = []resourceapi.DeviceConstraint{{MatchAttribute: &parent}}
	s.template("four", devices)
	create := func(name string) {
		pod := newPod(name, fromTemplate("four"))
		pod.Spec.NodeSelector = map[string]string{corev1.LabelHostname: nodeA}
		s.create(pod)
	}
	for n := range 8 {
		create(fmt.Sprintf("four-%d", n))
	}
	s.waitAllRunning(8)
	assert.Equal(t, 32, s.machine(nodeA).instances())
	gpus := map[string]bool{}
	for n := range 8 {
		pod := s.pod(fmt.Sprintf("four-%d", n))
		gpuID := gpu.OfDevice(s.allocated(pod, "a").Device)
		gpus[gpuID] = true
		for _, request := range requests {
			assert.Equal(t, gpuID, gpu.OfDevice(s.allocated(pod, request).Device))
		}
		// A container that has all four sees one GPU and eight capabilities.
		assert.Len(t, s.seen(pod, "main"), len(commonNodes)+1+8)
	}
	assert.Len(t, gpus, 8)
	create("one-more")
	s.waitUnschedulable("one-more")
	s.gpuPod("small", class1g10gb)
	s.waitUnschedulable("small")
}
