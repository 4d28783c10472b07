package node

import (
	"cmp"
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/pkg/gpu"
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
		Spec:       resourceapi.ResourceSliceSpec{Driver: nvidiaDRADriver, NodeName: new(nodeName), Pool: resourceapi.ResourcePool{Name: "n"}, Devices: devices},
	}
}

func amdSlice(devices ...resourceapi.Device) *resourceapi.ResourceSlice {
	s := nvidiaSlice(devices...)
	s.Name, s.Spec.Driver = "amd", amdDRADriver
	return s
}

// managed is a node that AMD's device config manager is to set up.
func managed(profile string) *corev1.Node { return labelled(configManagerLabel, profile) }

func labelled(key, value string) *corev1.Node {
	n := nodeWith(nil)
	n.Labels = map[string]string{key: value}
	return n
}

func TestFindOwners(t *testing.T) {
	for name, tt := range map[string]struct {
		node    *corev1.Node
		slices  []*resourceapi.ResourceSlice
		manager bool
		vendor  gpu.Vendor
		want    string
		found   string
	}{
		"nobody":                               {node: nodeWith(map[corev1.ResourceName]string{"cpu": "8", "amd.com/nic": "8", "amd.com/gpu": "0"})},
		"no node seen":                         {},
		"device plugin":                        {node: nodeWith(map[corev1.ResourceName]string{"nvidia.com/gpu": "8"}), want: "device-plugin", found: "a device plugin serves nvidia.com/gpu: 8 here"},
		"device plugin, shared":                {node: nodeWith(map[corev1.ResourceName]string{"nvidia.com/gpu.shared": "80"}), want: "device-plugin", found: "nvidia.com/gpu.shared: 80"},
		"device plugin, MIG":                   {node: nodeWith(map[corev1.ResourceName]string{"nvidia.com/mig-3g.40gb": "2", "nvidia.com/mig-1g.10gb": "7"}), want: "device-plugin", found: "nvidia.com/mig-1g.10gb: 7, nvidia.com/mig-3g.40gb: 2"},
		"device plugin, gone":                  {node: nodeWith(map[corev1.ResourceName]string{"nvidia.com/gpu": "0", "nvidia.com/mig-1g.10gb": "0"})},
		"NVIDIA's DRA driver":                  {slices: []*resourceapi.ResourceSlice{nvidiaSlice(), nvidiaSlice(resourceapi.Device{Name: "gpu-0"})}, want: "gpu.nvidia.com", found: "DRA driver gpu.nvidia.com publishes devices of this node"},
		"NVIDIA's DRA driver, idle":            {slices: []*resourceapi.ResourceSlice{nvidiaSlice()}},
		"mig-manager":                          {manager: true, want: "mig-manager", found: "process nvidia-mig-manager of mig-manager runs here"},
		"mig-manager at work":                  {node: labelled(migStateLabel, "pending"), want: "mig-manager", found: "its label nvidia.com/mig.config.state=pending says that mig-manager is changing them"},
		"mig-manager, seen twice":              {node: labelled(migStateLabel, "pending"), manager: true, want: "mig-manager", found: "process nvidia-mig-manager of mig-manager runs here"},
		"mig-manager that is done":             {node: labelled(migStateLabel, "success")},
		"AMD's device plugin":                  {node: nodeWith(map[corev1.ResourceName]string{"amd.com/gpu": "8"}), want: "device-plugin", vendor: gpu.AMD, found: "a device plugin serves amd.com/gpu: 8 here"},
		"AMD's device plugin, named by mode":   {node: nodeWith(map[corev1.ResourceName]string{"amd.com/cpx_nps4": "64", "amd.com/spx_nps1": "1"}), want: "device-plugin", vendor: gpu.AMD, found: "amd.com/cpx_nps4: 64, amd.com/spx_nps1: 1"},
		"AMD's DRA driver":                     {slices: []*resourceapi.ResourceSlice{amdSlice(resourceapi.Device{Name: "gpu-1-128"})}, want: "gpu.amd.com", vendor: gpu.AMD, found: "DRA driver gpu.amd.com publishes devices of this node"},
		"device config manager":                {node: managed("cpx-profile"), want: "device-config-manager", vendor: gpu.AMD, found: "its label dcm.amd.com/gpu-config-profile=cpx-profile lets"},
		"device config manager without orders": {node: managed("")},
		"all of them": {
			node:    nodeWith(map[corev1.ResourceName]string{"nvidia.com/gpu": "8"}),
			slices:  []*resourceapi.ResourceSlice{nvidiaSlice(resourceapi.Device{Name: "gpu-0"})},
			manager: true,
			want:    "device-plugin_gpu.nvidia.com_mig-manager",
		},
	} {
		t.Run(name, func(t *testing.T) {
			found := owners(findOwners(tt.node, tt.slices, tt.manager))
			assert.Equal(t, tt.want, found.names())
			for _, o := range found {
				assert.Equal(t, cmp.Or(tt.vendor, gpu.NVIDIA), o.vendor)
				assert.Contains(t, o.remedy, "off this node")
				assert.Contains(t, o.found, tt.found)
			}
		})
	}
}
