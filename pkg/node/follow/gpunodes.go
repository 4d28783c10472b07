package follow

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/client"
	"github.com/tranche-dev/tranche/pkg/node/inventory"
)

// fieldManager owns the fields of a GPUNode that the plugin writes.
const fieldManager = "tranche-kubelet-plugin"

// writeTimeout is how long the API server may take for one write.
const writeTimeout = 15 * time.Second

// newGPUNode returns the GPUNode of a node. It is deleted with the node.
func newGPUNode(node *corev1.Node) *v1beta1.GPUNode {
	return &v1beta1.GPUNode{ObjectMeta: metav1.ObjectMeta{
		Name: node.Name,
		OwnerReferences: []metav1.OwnerReference{{
			APIVersion: corev1.SchemeGroupVersion.String(), Kind: "Node", Name: node.Name, UID: node.UID,
		}},
	}}
}

// watchGPUNode returns an informer for the GPUNode of one node.
func watchGPUNode(nodes client.GPUNodes, name string) cache.SharedIndexInformer {
	informer := cache.NewSharedIndexInformer(client.ListWatch(nodes, name), &v1beta1.GPUNode{}, 0, nil)
	_ = informer.SetTransform(inventory.WithoutBulk) // it fails only once the informer runs
	return informer
}
