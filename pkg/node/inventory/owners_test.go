package inventory

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware"
	"github.com/tranche-dev/tranche/test/nodetest"
)

// Each vendor's other systems are in the way of its own GPUs.
func TestFindOwners(t *testing.T) {
	assert.Empty(t, findOwners(nodetest.RealVendors(), hardware.Evidence{}))
	found := findOwners(nodetest.RealVendors(), hardware.Evidence{
		Node:    nodetest.NodeWith(map[corev1.ResourceName]string{"nvidia.com/gpu": "8", "amd.com/gpu": "8"}),
		Slices:  []*resourceapi.ResourceSlice{nodetest.NVIDIASlice(resourceapi.Device{Name: "gpu-0"})},
		Running: []string{"nvidia-mig-manager"},
	})
	assert.Equal(t, "device-plugin_gpu.nvidia.com_mig-manager", found.Of(gpu.NVIDIA, "").Names())
	assert.Equal(t, "device-plugin", found.Of(gpu.AMD, "").Names())
}

// Any driver that publishes a device with the PCI address of a GPU serves that GPU, and no other.
func TestADriverThatPublishesTheAddressOfAGPU(t *testing.T) {
	const hami, first, second = "hami-core-gpu.project-hami.io", "0000:01:00.0", "0000:02:00.0"
	with := func(driver string, values ...resourceapi.DeviceAttribute) *resourceapi.ResourceSlice {
		s := &resourceapi.ResourceSlice{Spec: resourceapi.ResourceSliceSpec{Driver: driver}}
		for i, v := range values {
			s.Spec.Devices = append(s.Spec.Devices, resourceapi.Device{
				Name: fmt.Sprint("device-", i), Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{"resource.kubernetes.io/pciBusID": v},
			})
		}
		return s
	}
	text := func(value string) resourceapi.DeviceAttribute {
		return resourceapi.DeviceAttribute{StringValue: &value}
	}
	for name, tt := range map[string]struct {
		slice                       *resourceapi.ResourceSlice
		ofFirst, ofSecond, ofAnyAMD string
	}{
		"one GPU":             {with(hami, text(first)), hami, "", ""},
		"parts of one GPU":    {with(hami, text(first), text(first)), hami, "", ""},
		"parts of two GPUs":   {with(hami, text(first), text(second), text(first)), hami, hami, ""},
		"as NVML writes it":   {with(hami, text("00000000:01:00.0")), hami, "", ""},
		"a list":              {with(hami, resourceapi.DeviceAttribute{StringValues: []string{second, first}}), hami, hami, ""},
		"another device":      {with("nic.example.com", text("0000:99:00.0")), "", "", ""},
		"no address":          {with("nic.example.com", resourceapi.DeviceAttribute{}), "", "", ""},
		"not an address":      {with("nic.example.com", text("anywhere")), "", "", ""},
		"known by name":       {with("gpu.nvidia.com", resourceapi.DeviceAttribute{}), "gpu.nvidia.com", "gpu.nvidia.com", ""},
		"known, with address": {with("gpu.nvidia.com", text(first)), "gpu.nvidia.com", "gpu.nvidia.com", ""},
	} {
		t.Run(name, func(t *testing.T) {
			kept, err := addressesOnly(tt.slice)
			require.NoError(t, err)
			found := findOwners(nodetest.RealVendors(), hardware.Evidence{Slices: []*resourceapi.ResourceSlice{kept.(*resourceapi.ResourceSlice)}})
			assert.Equal(t, tt.ofFirst, found.Of(gpu.NVIDIA, first).Names())
			assert.Equal(t, tt.ofSecond, found.Of(gpu.NVIDIA, second).Names())
			assert.Equal(t, tt.ofAnyAMD, found.Of(gpu.AMD, "0000:03:00.0").Names())
		})
	}
}

// The value of a taint is limited, and drivers can have long names.
func TestNamesFitATaint(t *testing.T) {
	long := func(letter string) Owner { return Owner{Owner: hardware.Owner{Name: strings.Repeat(letter, 40)}} }
	assert.Equal(t, long("a").Name, Owners{long("a"), long("b")}.Names())
	assert.Empty(t, Owners{}.Names())
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
	assert.Equal(t, all, append(all, Owner{Owner: hardware.Owner{Name: "device-plugin"}, Vendor: gpu.NVIDIA}).Unmanaged())
	assert.Equal(t, "unmanaged", all.Of(gpu.NVIDIA, "").Names())
	w.First.Labels = map[string]string{"tranche.dev/managed": "true"}
	assert.True(t, w.IsManaged())
}
