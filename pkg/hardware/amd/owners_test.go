package amd

import (
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/pkg/hardware"
)

func TestOwners(t *testing.T) {
	allocatable := func(quantities map[corev1.ResourceName]string) *corev1.Node {
		n := &corev1.Node{Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{}}}
		for name, quantity := range quantities {
			n.Status.Allocatable[name] = resource.MustParse(quantity)
		}
		return n
	}
	published := func(driver string) []*resourceapi.ResourceSlice {
		return []*resourceapi.ResourceSlice{{Spec: resourceapi.ResourceSliceSpec{Driver: driver, Devices: []resourceapi.Device{{Name: "gpu-1-128"}}}}}
	}
	for name, tt := range map[string]struct {
		node        *corev1.Node
		slices      []*resourceapi.ResourceSlice
		running     []string
		want, found string
		remedy      string
	}{
		"nobody":                             {node: allocatable(map[corev1.ResourceName]string{"cpu": "8", "amd.com/nic": "8", "amd.com/gpu": "0", "nvidia.com/gpu": "8"})},
		"no node seen":                       {},
		"device plugin":                      {node: allocatable(map[corev1.ResourceName]string{"amd.com/gpu": "8"}), want: "device-plugin", found: "a device plugin serves amd.com/gpu: 8 here"},
		"device plugin, named by mode":       {node: allocatable(map[corev1.ResourceName]string{"amd.com/cpx_nps4": "64", "amd.com/spx_nps1": "1"}), want: "device-plugin", found: "amd.com/cpx_nps4: 64, amd.com/spx_nps1: 1"},
		"DRA driver":                         {slices: published(draDriver), want: "gpu.amd.com", found: "DRA driver gpu.amd.com publishes devices of this node"},
		"operator with node labeller alone":  {node: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"amd.com/gpu.vram": "192G", "amd.com/compute-partitioning-supported": "true", "operator.amd.com/gpu-driver-upgrade-state": "upgrade-complete"}}}},
		"another DRA driver":                 {slices: published("gpu.nvidia.com")},
		"device config manager":              {running: []string{configManagerProgram}, want: "device-config-manager", remedy: "spec.configManager.enable=false", found: "process /home/amd/bin/server of AMD's device config manager runs here"},
		"label of the device config manager": {node: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"dcm.amd.com/gpu-config-profile": "cpx"}}}},
	} {
		t.Run(name, func(t *testing.T) {
			found := Vendor{}.Owners(hardware.Evidence{Node: tt.node, Slices: tt.slices, Running: tt.running})
			if tt.want == "" {
				assert.Empty(t, found)
				return
			}
			assert.Len(t, found, 1)
			assert.Equal(t, tt.want, found[0].Name)
			assert.Contains(t, found[0].Found, tt.found)
			assert.Contains(t, found[0].Remedy, "off this node")
			assert.Contains(t, found[0].Remedy, tt.remedy)
		})
	}
}

func TestUpgradeSignal(t *testing.T) {
	node := func(taint string) *corev1.Node {
		return &corev1.Node{Spec: corev1.NodeSpec{Taints: []corev1.Taint{{Key: taint, Value: "true", Effect: corev1.TaintEffectNoSchedule}}}}
	}
	assert.Empty(t, Vendor{}.UpgradeSignal(node("other")))
	assert.Equal(t, "the node's taint amd-gpu-driver-upgrade", Vendor{}.UpgradeSignal(node(upgradeTaint)))
	retry := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"operator.amd.com/gpu-driver-upgrade-state": "upgrade-required"}}}
	assert.Empty(t, Vendor{}.UpgradeSignal(retry), "the operator is asked to retry")
}
