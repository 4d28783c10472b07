package nodewatch

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/tranche-dev/tranche/api/names"
)

// What is kept of the node is what is read of it.
func TestNodeIsKeptWithoutItsBulk(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: "node-a", Labels: map[string]string{names.LabelProfile: "shared"},
		ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubelet"}},
	}}
	node.Status.Images = []corev1.ContainerImage{{Names: []string{"large"}}}
	node.Status.Allocatable = corev1.ResourceList{"nvidia.com/gpu": {}}
	w := New(fake.NewClientset(node), node)
	w.StartWithContext(t.Context())
	w.WaitForCacheSync(t.Context().Done())
	kept, err := w.Core().V1().Nodes().Lister().Get("node-a")
	require.NoError(t, err)
	assert.Empty(t, kept.ManagedFields)
	assert.Empty(t, kept.Status.Images)
	assert.Equal(t, node.Status.Allocatable, kept.Status.Allocatable)
	assert.Equal(t, node.Labels, w.Labels())
}
