package node

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/tranche-dev/tranche/pkg/gpu"
)

func TestLabelsOf(t *testing.T) {
	g := func(vendor gpu.Vendor, product string, mib int64) gpu.GPU {
		return gpu.GPU{Vendor: vendor, ProductName: product, Memory: mib << 20}
	}
	h100, l4 := g(gpu.NVIDIA, "NVIDIA H100 80GB HBM3", 81559), g(gpu.NVIDIA, "NVIDIA L4", 23034)
	for name, test := range map[string]struct {
		gpus []gpu.GPU
		want map[string]string
	}{
		"no GPU":           {nil, nil},
		"one vendor's":     {[]gpu.GPU{g(gpu.AMD, "MI300X", 196592)}, nil},
		"two of a kind":    {[]gpu.GPU{h100, h100}, map[string]string{labelProduct: "NVIDIA-H100-80GB-HBM3", labelCount: "2", labelMemory: "81559"}},
		"mixed":            {[]gpu.GPU{h100, l4}, map[string]string{labelCount: "2", labelMemory: "23034"}},
		"another's beside": {[]gpu.GPU{l4, g(gpu.AMD, "x", 1)}, map[string]string{labelProduct: "NVIDIA-L4", labelCount: "1", labelMemory: "23034"}},
		"nothing known":    {[]gpu.GPU{{Vendor: gpu.NVIDIA, ProductName: "NVIDIA L4"}}, map[string]string{labelProduct: "NVIDIA-L4", labelCount: "1"}},
	} {
		assert.Equal(t, test.want, labelsOf(test.gpus), name)
	}
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
	api := newAPI()
	node := func() *corev1.Node {
		n, err := api.CoreV1().Nodes().Get(t.Context(), nodeName, metav1.GetOptions{})
		require.NoError(t, err)
		return n
	}
	n := node()
	n.Labels = map[string]string{"zone": "a", labelProduct: "of-old", labelCount: "1"}
	_, err := api.CoreV1().Nodes().Update(t.Context(), n, metav1.UpdateOptions{})
	require.NoError(t, err)

	l := &labeler{client: api, node: nodeName}
	wanted := map[string]string{labelCount: "8", labelMemory: "81559"}
	require.NoError(t, l.update(t.Context(), wanted))
	require.NoError(t, l.update(t.Context(), wanted))
	assert.Equal(t, map[string]string{"zone": "a", labelCount: "8", labelMemory: "81559"}, node().Labels)
	assert.Equal(t, 1, patches(api))

	again := &labeler{client: api, node: nodeName}
	require.NoError(t, again.update(t.Context(), wanted))
	assert.Equal(t, 1, patches(api), "a restart writes nothing")
	require.NoError(t, again.remove(t.Context()))
	require.NoError(t, again.update(t.Context(), wanted))
	assert.Equal(t, map[string]string{"zone": "a"}, node().Labels)
	again.resume()
	require.NoError(t, again.update(t.Context(), wanted))
	assert.Equal(t, "8", node().Labels[labelCount])
}
