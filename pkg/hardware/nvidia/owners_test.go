package nvidia

import (
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/pkg/hardware"
)

func allocatable(quantities map[corev1.ResourceName]string) *corev1.Node {
	n := &corev1.Node{Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{}}}
	for name, quantity := range quantities {
		n.Status.Allocatable[name] = resource.MustParse(quantity)
	}
	return n
}

func labelled(labels map[string]string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: labels}}
}

func sliceOf(driver string, devices ...resourceapi.Device) *resourceapi.ResourceSlice {
	return &resourceapi.ResourceSlice{Spec: resourceapi.ResourceSliceSpec{Driver: driver, Devices: devices}}
}

func TestOwners(t *testing.T) {
	device := resourceapi.Device{Name: "gpu-0"}
	// Labels stay when mig-manager is gone, and the GPU operator sets the second without one.
	labels := map[string]string{"nvidia.com/mig.config.state": "pending", "nvidia.com/gpu.deploy.mig-manager": "true", "nvidia.com/mig.config": "all-balanced"}
	for name, tt := range map[string]struct {
		node    *corev1.Node
		slices  []*resourceapi.ResourceSlice
		running []string
		// want are the names, found is part of what gave the first away.
		want  []string
		found string
	}{
		"nobody":                     {node: allocatable(map[corev1.ResourceName]string{"cpu": "8", "nvidia.com/nic": "8", "amd.com/gpu": "8"})},
		"no node seen":               {},
		"device plugin":              {node: allocatable(map[corev1.ResourceName]string{"nvidia.com/gpu": "8"}), want: []string{"device-plugin"}, found: "a device plugin serves nvidia.com/gpu: 8 here"},
		"device plugin, shared":      {node: allocatable(map[corev1.ResourceName]string{"nvidia.com/gpu.shared": "80"}), want: []string{"device-plugin"}, found: "nvidia.com/gpu.shared: 80"},
		"device plugin, MIG":         {node: allocatable(map[corev1.ResourceName]string{"nvidia.com/mig-3g.40gb": "2", "nvidia.com/mig-1g.10gb": "7"}), want: []string{"device-plugin"}, found: "nvidia.com/mig-1g.10gb: 7, nvidia.com/mig-3g.40gb: 2"},
		"device plugin, gone":        {node: allocatable(map[corev1.ResourceName]string{"nvidia.com/gpu": "0", "nvidia.com/mig-1g.10gb": "0"})},
		"DRA driver":                 {slices: []*resourceapi.ResourceSlice{sliceOf(draDriver), sliceOf(draDriver, device)}, want: []string{"gpu.nvidia.com"}, found: "DRA driver gpu.nvidia.com publishes devices of this node"},
		"DRA driver, idle":           {slices: []*resourceapi.ResourceSlice{sliceOf(draDriver)}},
		"GPUCluster of the operator": {node: labelled(map[string]string{"nvidia.com/gpu.deploy.dra-driver": "true"}), slices: []*resourceapi.ResourceSlice{sliceOf(draDriver, device), sliceOf("compute-domain.nvidia.com", device)}, want: []string{"gpu.nvidia.com"}, found: "gpu.nvidia.com"},
		"GPUCluster, off this node":  {node: labelled(map[string]string{"nvidia.com/gpu.deploy.dra-driver": "false"}), slices: []*resourceapi.ResourceSlice{sliceOf(draDriver)}},
		"compute domains alone":      {slices: []*resourceapi.ResourceSlice{sliceOf("compute-domain.nvidia.com", device)}},
		"another DRA driver":         {slices: []*resourceapi.ResourceSlice{sliceOf("gpu.amd.com", device)}},
		"mig-manager":                {running: []string{migManagerProgram}, want: []string{"mig-manager"}, found: "process nvidia-mig-manager of mig-manager runs here"},
		"labels of mig-manager":      {node: labelled(labels)},
		"all of them": {
			node:    allocatable(map[corev1.ResourceName]string{"nvidia.com/gpu": "8"}),
			slices:  []*resourceapi.ResourceSlice{sliceOf(draDriver, device)},
			running: []string{migManagerProgram},
			want:    []string{"device-plugin", "gpu.nvidia.com", "mig-manager"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			found := Vendor{}.Owners(hardware.Evidence{Node: tt.node, Slices: tt.slices, Running: tt.running})
			assert.Len(t, found, len(tt.want))
			for i, o := range found {
				assert.Equal(t, tt.want[i], o.Name)
				assert.Contains(t, o.Remedy, "off this node")
			}
			if len(found) > 0 {
				assert.Contains(t, found[0].Found, tt.found)
			}
		})
	}
}

func TestUpgradeSignal(t *testing.T) {
	for name, tt := range map[string]struct{ key, value, want string }{
		"driver manager":            {"nvidia.com/gpu.deploy.dcgm", "paused-for-driver-upgrade", "the node's label nvidia.com/gpu.deploy.dcgm=paused-for-driver-upgrade"},
		"driver manager, own value": {"nvidia.com/gpu.deploy.client", "mine_paused-for-driver-upgrade", "the node's label nvidia.com/gpu.deploy.client=mine_paused-for-driver-upgrade"},
		"mig-manager":               {"nvidia.com/gpu.deploy.client", "paused-for-mig-change", ""},
		"pods are placed":           {"nvidia.com/gpu.deploy.driver", "true", ""},
		"pods leave":                {"nvidia.com/gpu-driver-upgrade-state", "drain-required", ""},
		"the driver restarts":       {"nvidia.com/gpu-driver-upgrade-state", "pod-restart-required", "the node's label nvidia.com/gpu-driver-upgrade-state=pod-restart-required"},
		"the upgrade is over":       {"nvidia.com/gpu-driver-upgrade-state", "upgrade-done", ""},
	} {
		assert.Equal(t, tt.want, Vendor{}.UpgradeSignal(labelled(map[string]string{tt.key: tt.value})), name)
	}
}
