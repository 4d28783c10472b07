package node

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
)

// nodeWatch is what the API server knows of the plugin's own node, for all who
// ask. Nobody else's node is watched.
type nodeWatch struct {
	informers.SharedInformerFactory
	name string
	// first is the node as it was when the plugin started.
	first *corev1.Node
}

// newNodeWatch watches a node once it is started.
func newNodeWatch(client kubernetes.Interface, first *corev1.Node) *nodeWatch {
	w := &nodeWatch{name: first.Name, first: first}
	w.SharedInformerFactory = informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTweakListOptions(func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, w.name).String()
	}), informers.WithTransform(withoutBulk))
	w.Core().V1().Nodes().Informer() // so that it is started with the others
	return w
}

// withoutBulk takes out of an object what nobody here reads and what can be most of it:
// who wrote which field, and of a node which images it has.
func withoutBulk(object any) (any, error) {
	if o, ok := object.(metav1.Object); ok {
		o.SetManagedFields(nil)
	}
	if node, ok := object.(*corev1.Node); ok {
		node.Status.Images = nil
	}
	return object, nil
}

// labels are the node's, as they were last seen.
func (w *nodeWatch) labels() map[string]string {
	if node, err := w.Core().V1().Nodes().Lister().Get(w.name); err == nil {
		return node.Labels
	}
	return w.first.Labels
}
