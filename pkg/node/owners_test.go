package node

import (
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware"
	"github.com/tranche-dev/tranche/pkg/hardware/amd"
	"github.com/tranche-dev/tranche/pkg/hardware/nvidia"
)

func nodeWith(allocatable map[corev1.ResourceName]string) *corev1.Node {
	n := &corev1.Node{Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{}}}
	for name, quantity := range allocatable {
		n.Status.Allocatable[name] = resource.MustParse(quantity)
	}
	return n
}

func nvidiaSlice(devices ...resourceapi.Device) *resourceapi.ResourceSlice {
	return &resourceapi.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Name: "nvidia"},
		Spec:       resourceapi.ResourceSliceSpec{Driver: "gpu.nvidia.com", NodeName: new(nodeName), Pool: resourceapi.ResourcePool{Name: "n"}, Devices: devices},
	}
}

func amdSlice(devices ...resourceapi.Device) *resourceapi.ResourceSlice {
	s := nvidiaSlice(devices...)
	s.Name, s.Spec.Driver = "amd", "gpu.amd.com"
	return s
}

// realVendors are the vendors of a real machine.
func realVendors() []hardware.Vendor { return []hardware.Vendor{nvidia.Vendor{}, amd.Vendor{}} }

// Each vendor's other systems are in the way of its own GPUs.
func TestFindOwners(t *testing.T) {
	assert.Empty(t, findOwners(realVendors(), hardware.Evidence{}))
	found := findOwners(realVendors(), hardware.Evidence{
		Node:    nodeWith(map[corev1.ResourceName]string{"nvidia.com/gpu": "8", "amd.com/gpu": "8"}),
		Slices:  []*resourceapi.ResourceSlice{nvidiaSlice(resourceapi.Device{Name: "gpu-0"})},
		Running: []string{"nvidia-mig-manager"},
	})
	assert.Equal(t, "device-plugin_gpu.nvidia.com_mig-manager", found.of(gpu.NVIDIA).names())
	assert.Equal(t, "device-plugin", found.of(gpu.AMD).names())
}
