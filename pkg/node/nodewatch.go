package node

import (
	"context"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware"
)

// nodeWatch is what the API server knows of the plugin's own node, for all who
// ask. Nobody else's node is watched.
type nodeWatch struct {
	informers.SharedInformerFactory
	name string
	// first is the node as it was when the plugin started.
	first *corev1.Node
	// vendors are those whose GPUs the node may have.
	vendors []hardware.Vendor
	// upgraded tells that another driver is being replaced, or none any more. One place
	// is enough: a signal that waits covers everything before it.
	upgraded chan struct{}
	// watching is set once the watch has begun.
	watching bool
}

// newNodeWatch watches a node once it is started.
func newNodeWatch(client kubernetes.Interface, first *corev1.Node) *nodeWatch {
	w := &nodeWatch{name: first.Name, first: first, upgraded: make(chan struct{}, 1)}
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

// node is the node as it was last seen.
func (w *nodeWatch) node() *corev1.Node {
	if node, err := w.Core().V1().Nodes().Lister().Get(w.name); err == nil {
		return node
	}
	return w.first
}

// labels are the node's, as they were last seen.
func (w *nodeWatch) labels() map[string]string { return w.node().Labels }

// upgrades tells which vendors' drivers are being replaced, with what says so.
func (w *nodeWatch) upgrades() map[gpu.Vendor]string { return upgradesOf(w.vendors, w.node()) }

// watch begins to watch the node, once. ended is called once it is another one
// (whenReplaced).
func (w *nodeWatch) watch(ctx context.Context, ended func(error)) error {
	if w.watching {
		return nil
	}
	w.watching = true
	if err := w.whenReplaced(ended); err != nil {
		return err
	}
	told := upgradesOf(w.vendors, w.first)
	look := func(object any) {
		node, ok := object.(*corev1.Node)
		if !ok || maps.Equal(upgradesOf(w.vendors, node), told) {
			return
		}
		told = upgradesOf(w.vendors, node)
		select {
		case w.upgraded <- struct{}{}:
		default:
		}
	}
	handler := cache.ResourceEventHandlerFuncs{AddFunc: look, UpdateFunc: func(_, now any) { look(now) }}
	if _, err := w.Core().V1().Nodes().Informer().AddEventHandler(handler); err != nil {
		return fmt.Errorf("watch node %s: %w", w.name, err)
	}
	w.StartWithContext(ctx)
	return nil
}

// whenReplaced calls ended once the node that the plugin started on is not there any
// more: it was deleted, or deleted and registered again, which gives it another UID.
// What the plugin writes names the old UID as its owner, so the garbage collector
// would delete all of it again.
func (w *nodeWatch) whenReplaced(ended func(error)) error {
	check := func(object any) {
		if node, ok := object.(*corev1.Node); ok && node.UID != w.first.UID {
			ended(fmt.Errorf("node %s was deleted and registered again (its UID was %s and is now %s): the plugin starts over, so that what it publishes belongs to the new one",
				w.name, w.first.UID, node.UID))
		}
	}
	_, err := w.Core().V1().Nodes().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    check,
		UpdateFunc: func(_, now any) { check(now) },
		DeleteFunc: func(any) {
			ended(fmt.Errorf("node %s (UID %s) was deleted: the plugin starts over, and publishes its GPUs again when it is registered again", w.name, w.first.UID))
		},
	})
	if err != nil {
		return fmt.Errorf("watch node %s: %w", w.name, err)
	}
	return nil
}
