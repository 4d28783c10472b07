package nodewatch

import (
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"

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

// A node without the labels that the chart requires is not Tranche's.
func TestUnmanaged(t *testing.T) {
	w := &Node{First: &corev1.Node{}, Vendors: nodetest.RealVendors()}
	w.SharedInformerFactory = informers.NewSharedInformerFactory(nodetest.NewAPI(), 0)
	assert.True(t, w.IsManaged())
	assert.Empty(t, w.unmanaged())
	w.Managed = labels.SelectorFromSet(labels.Set{"tranche.dev/managed": "true"})
	assert.False(t, w.IsManaged())
	all := w.unmanaged()
	assert.Len(t, all, 2)
	assert.Equal(t, all, append(all, Owner{hardware.Owner{Name: "device-plugin"}, gpu.NVIDIA}).Unmanaged())
	assert.Equal(t, "unmanaged", all.Of(gpu.NVIDIA).Names())
	w.First.Labels = map[string]string{"tranche.dev/managed": "true"}
	assert.True(t, w.IsManaged())
}
