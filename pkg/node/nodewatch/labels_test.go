package nodewatch

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware"
	"github.com/tranche-dev/tranche/test/nodetest"
)

const labelProduct, labelCount, labelMemory = "nvidia.com/gpu.product", "nvidia.com/gpu.count", "nvidia.com/gpu.memory"

// Each vendor describes its own GPUs.
func TestLabelsOf(t *testing.T) {
	h100 := hardware.OfferedGPU{GPU: gpu.GPU{Vendor: gpu.NVIDIA, ProductName: "NVIDIA H100 80GB HBM3", Memory: 81559 << 20}}
	mi300x := hardware.OfferedGPU{GPU: gpu.GPU{Vendor: gpu.AMD, ProductName: "MI300X", Memory: 196592 << 20}}
	assert.Empty(t, LabelsOf(nodetest.RealVendors(), nil))
	assert.Empty(t, LabelsOf(nodetest.RealVendors(), []hardware.OfferedGPU{mi300x}))
	assert.Equal(t, map[string]string{labelProduct: "NVIDIA-H100-80GB-HBM3", labelCount: "1", labelMemory: "81559", "nvidia.com/gpu.replicas": "0"},
		LabelsOf(nodetest.RealVendors(), []hardware.OfferedGPU{h100, mi300x}))
	assert.Empty(t, LabelsOf(nil, []hardware.OfferedGPU{h100}))
}

func patches(api *fake.Clientset) (n int) {
	for _, a := range api.Actions() {
		if a.GetVerb() == "patch" && a.GetResource().Resource == "nodes" {
			n++
		}
	}
	return n
}

// The node is written when its labels change, and other labels are left alone.
func TestLabeler(t *testing.T) {
	api := nodetest.NewAPI()
	node := func() *corev1.Node {
		n, err := api.CoreV1().Nodes().Get(t.Context(), nodetest.NodeName, metav1.GetOptions{})
		require.NoError(t, err)
		return n
	}
	n := node()
	n.Labels = map[string]string{"zone": "a", "nvidia.com/mig.config": "all-balanced", labelProduct: "of-old", labelCount: "1", "nvidia.com/mig-1g.5gb.count": "7"}
	_, err := api.CoreV1().Nodes().Update(t.Context(), n, metav1.UpdateOptions{})
	require.NoError(t, err)

	l := NewLabeler(api, &Node{name: nodetest.NodeName, Vendors: nodetest.RealVendors()})
	wanted := map[string]string{labelCount: "8", labelMemory: "81559"}
	require.NoError(t, l.Update(t.Context(), wanted))
	require.NoError(t, l.Update(t.Context(), wanted))
	assert.Equal(t, map[string]string{"zone": "a", "nvidia.com/mig.config": "all-balanced", labelCount: "8", labelMemory: "81559"}, node().Labels)
	assert.Equal(t, 1, patches(api))

	again := NewLabeler(api, &Node{name: nodetest.NodeName, Vendors: nodetest.RealVendors()})
	require.NoError(t, again.Update(t.Context(), wanted))
	assert.Equal(t, 1, patches(api), "a restart writes nothing")
	require.NoError(t, again.Remove(t.Context()))
	require.NoError(t, again.Update(t.Context(), wanted))
	assert.Equal(t, map[string]string{"zone": "a", "nvidia.com/mig.config": "all-balanced"}, node().Labels)
	again.Resume()
	require.NoError(t, again.Update(t.Context(), wanted))
	assert.Equal(t, "8", node().Labels[labelCount])
}
