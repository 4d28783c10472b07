package nodewatch

import (
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware"
	"github.com/tranche-dev/tranche/pkg/node/nodetest"
)

// Each vendor's other systems are in the way of its own GPUs.
func TestFindOwners(t *testing.T) {
	assert.Empty(t, findOwners(nodetest.RealVendors(), hardware.Evidence{}))
	found := findOwners(nodetest.RealVendors(), hardware.Evidence{
		Node:    nodetest.NodeWith(map[corev1.ResourceName]string{"nvidia.com/gpu": "8", "amd.com/gpu": "8"}),
		Slices:  []*resourceapi.ResourceSlice{nodetest.NVIDIASlice(resourceapi.Device{Name: "gpu-0"})},
		Running: []string{"nvidia-mig-manager"},
	})
	assert.Equal(t, "device-plugin_gpu.nvidia.com_mig-manager", found.Of(gpu.NVIDIA).Names())
	assert.Equal(t, "device-plugin", found.Of(gpu.AMD).Names())
}
