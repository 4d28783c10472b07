package nodewatch

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

	"github.com/tranche-dev/tranche/api/v1alpha1"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware"
)

// Node is what the API server knows of the plugin's own node, for all who
// ask. Nobody else's node is watched.
type Node struct {
	informers.SharedInformerFactory
	name string
	// First is the node as it was when the plugin started.
	First *corev1.Node
	// Vendors are those whose GPUs the node may have.
	Vendors []hardware.Vendor
	// Upgraded tells that another driver is being replaced, or none any more. One place
	// is enough: a signal that waits covers everything before it.
	Upgraded chan struct{}
	// watching is set once the watch has begun.
	watching bool
}

// New watches a node once it is started.
func New(client kubernetes.Interface, first *corev1.Node) *Node {
	w := &Node{name: first.Name, First: first, Upgraded: make(chan struct{}, 1)}
	w.SharedInformerFactory = informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTweakListOptions(func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, w.name).String()
	}), informers.WithTransform(WithoutBulk))
	w.Core().V1().Nodes().Informer() // so that it is started with the others
	return w
}

// WithoutBulk takes out of an object what nobody here reads and what can be most of it:
// who wrote which field, and of a node which images it has.
func WithoutBulk(object any) (any, error) {
	if o, ok := object.(metav1.Object); ok {
		o.SetManagedFields(nil)
	}
	if node, ok := object.(*corev1.Node); ok {
		node.Status.Images = nil
	}
	return object, nil
}

// node is the node as it was last seen.
func (w *Node) node() *corev1.Node {
	if node, err := w.Core().V1().Nodes().Lister().Get(w.name); err == nil {
		return node
	}
	return w.First
}

// Labels are the node's, as they were last seen.
func (w *Node) Labels() map[string]string { return w.node().Labels }

// Upgrades tells which vendors' drivers are being replaced, with what says so.
func (w *Node) Upgrades() map[gpu.Vendor]string { return UpgradesOf(w.Vendors, w.node()) }

// Watch begins to watch the node, once. ended is called once it is another one
// (whenReplaced).
func (w *Node) Watch(ctx context.Context, ended func(error)) error {
	if w.watching {
		return nil
	}
	w.watching = true
	if err := w.whenReplaced(ended); err != nil {
		return err
	}
	told := UpgradesOf(w.Vendors, w.First)
	look := func(object any) {
		node, ok := object.(*corev1.Node)
		if !ok || maps.Equal(UpgradesOf(w.Vendors, node), told) {
			return
		}
		told = UpgradesOf(w.Vendors, node)
		select {
		case w.Upgraded <- struct{}{}:
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
func (w *Node) whenReplaced(ended func(error)) error {
	check := func(object any) {
		if node, ok := object.(*corev1.Node); ok && node.UID != w.First.UID {
			ended(fmt.Errorf("node %s was deleted and registered again (its UID was %s and is now %s): the plugin starts over, so that what it publishes belongs to the new one",
				w.name, w.First.UID, node.UID))
		}
	}
	_, err := w.Core().V1().Nodes().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    check,
		UpdateFunc: func(_, now any) { check(now) },
		DeleteFunc: func(any) {
			ended(fmt.Errorf("node %s (UID %s) was deleted: the plugin starts over, and publishes its GPUs again when it is registered again", w.name, w.First.UID))
		},
	})
	if err != nil {
		return fmt.Errorf("watch node %s: %w", w.name, err)
	}
	return nil
}

// UpgradesOf tells which vendors' drivers are being replaced on a node, with what says so.
func UpgradesOf(vendors []hardware.Vendor, node *corev1.Node) map[gpu.Vendor]string {
	upgrades := map[gpu.Vendor]string{}
	for _, v := range vendors {
		signal := v.UpgradeSignal(node)
		if value := node.Labels[v1alpha1.LabelDriverUpgrade]; value == "true" || value == string(v.Name()) {
			signal = fmt.Sprintf("the node's label %s=%s", v1alpha1.LabelDriverUpgrade, value)
		}
		if signal != "" {
			upgrades[v.Name()] = signal
		}
	}
	return upgrades
}
