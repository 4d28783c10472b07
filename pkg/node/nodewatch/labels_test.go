package nodewatch

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/node/nodetest"
)

const labelProduct, labelCount, labelMemory = "nvidia.com/gpu.product", "nvidia.com/gpu.count", "nvidia.com/gpu.memory"

// Each vendor describes its own GPUs.
func TestLabelsOf(t *testing.T) {
	h100 := gpu.GPU{Vendor: gpu.NVIDIA, ProductName: "NVIDIA H100 80GB HBM3", Memory: 81559 << 20}
	mi300x := gpu.GPU{Vendor: gpu.AMD, ProductName: "MI300X", Memory: 196592 << 20}
	none := map[string]string{labelProduct: "", labelCount: "", labelMemory: ""}
	assert.Equal(t, none, LabelsOf(nodetest.RealVendors(), nil))
	assert.Equal(t, none, LabelsOf(nodetest.RealVendors(), []gpu.GPU{mi300x}))
	assert.Equal(t, map[string]string{labelProduct: "NVIDIA-H100-80GB-HBM3", labelCount: "1", labelMemory: "81559"},
		LabelsOf(nodetest.RealVendors(), []gpu.GPU{h100, mi300x}))
	assert.Empty(t, LabelsOf(nil, []gpu.GPU{h100}))
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
	n.Labels = map[string]string{"zone": "a", labelProduct: "of-old", labelCount: "1"}
	_, err := api.CoreV1().Nodes().Update(t.Context(), n, metav1.UpdateOptions{})
	require.NoError(t, err)

	l := NewLabeler(api, &Node{name: nodetest.NodeName, Vendors: nodetest.RealVendors()})
	wanted := map[string]string{labelProduct: "", labelCount: "8", labelMemory: "81559"}
	require.NoError(t, l.Update(t.Context(), wanted))
	require.NoError(t, l.Update(t.Context(), wanted))
	assert.Equal(t, map[string]string{"zone": "a", labelCount: "8", labelMemory: "81559"}, node().Labels)
	assert.Equal(t, 1, patches(api))

	again := NewLabeler(api, &Node{name: nodetest.NodeName, Vendors: nodetest.RealVendors()})
	require.NoError(t, again.Update(t.Context(), wanted))
	assert.Equal(t, 1, patches(api), "a restart writes nothing")
	require.NoError(t, again.Remove(t.Context()))
	require.NoError(t, again.Update(t.Context(), wanted))
	assert.Equal(t, map[string]string{"zone": "a"}, node().Labels)
	again.Resume()
	require.NoError(t, again.Update(t.Context(), wanted))
	assert.Equal(t, "8", node().Labels[labelCount])
}
