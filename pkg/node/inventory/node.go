package inventory

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware"
)

// Node is the plugin's own Node object. No other node is watched.
type Node struct {
	informers.SharedInformerFactory
	name string
	// First is the node as it was when the plugin started.
	First *corev1.Node
	// Vendors are the vendors whose GPUs the node may have.
	Vendors []hardware.Vendor
	// Managed selects the nodes that Tranche manages; nil: all.
	Managed labels.Selector
	// Upgraded gets a value when the upgrade of a driver begins or ends, or its label gets an
	// unknown value. One place is enough: a signal that waits covers everything before it.
	Upgraded chan struct{}
	// watching is set once Watch was called.
	watching bool
}

// NewNode returns a Node that is watched once Watch is called.
func NewNode(client kubernetes.Interface, first *corev1.Node, vendors []hardware.Vendor, managed labels.Selector) *Node {
	w := &Node{name: first.Name, First: first, Vendors: vendors, Managed: managed, Upgraded: make(chan struct{}, 1)}
	w.SharedInformerFactory = informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTweakListOptions(func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, w.name).String()
	}), informers.WithTransform(WithoutBulk))
	w.Core().V1().Nodes().Informer() // so that it is started with the others
	return w
}

// WithoutBulk removes large fields that the plugin does not read from an object: managed
// fields, and the images of a node.
func WithoutBulk(object any) (any, error) {
	if o, ok := object.(metav1.Object); ok {
		o.SetManagedFields(nil)
	}
	if node, ok := object.(*corev1.Node); ok {
		node.Status.Images = nil
	}
	return object, nil
}

func (w *Node) node() *corev1.Node {
	if node, err := w.Core().V1().Nodes().Lister().Get(w.name); err == nil {
		return node
	}
	return w.First
}

// Labels returns the labels of the node.
func (w *Node) Labels() map[string]string { return w.node().Labels }

// IsManaged reports whether Tranche manages the GPUs of the node.
func (w *Node) IsManaged() bool {
	return w.Managed == nil || w.Managed.Matches(labels.Set(w.Labels()))
}

// Upgrades returns the vendors whose drivers are being replaced, with the signal that says so.
func (w *Node) Upgrades() map[gpu.Vendor]string { return UpgradesOf(w.Vendors, w.node()) }

// UnknownUpgrade says that the label for the upgrade of drivers has a value that releases none. Empty:
// it has not.
func (w *Node) UnknownUpgrade() string {
	value, labelled := w.Labels()[names.LabelDriverUpgrade]
	known := []string{names.DriverUpgradeAll}
	for _, v := range w.Vendors {
		known = append(known, string(v.Name()))
	}
	if !labelled || slices.Contains(known, value) {
		return ""
	}
	slices.Sort(known)
	return fmt.Sprintf("The label %s=%s of this node releases no driver, so do not replace one yet: the value can be %s",
		names.LabelDriverUpgrade, value, strings.Join(known, ", "))
}

// Watch begins to watch the node. A second call does nothing. ended is called when the node is
// deleted or replaced.
func (w *Node) Watch(ctx context.Context, ended func(error)) error {
	if w.watching {
		return nil
	}
	w.watching = true
	if err := w.whenReplaced(ended); err != nil {
		return err
	}
	told, label := UpgradesOf(w.Vendors, w.First), w.First.Labels[names.LabelDriverUpgrade]
	look := func(object any) {
		node, ok := object.(*corev1.Node)
		if !ok || maps.Equal(UpgradesOf(w.Vendors, node), told) && node.Labels[names.LabelDriverUpgrade] == label {
			return
		}
		told, label = UpgradesOf(w.Vendors, node), node.Labels[names.LabelDriverUpgrade]
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

// whenReplaced calls ended when the node was deleted, or deleted and registered again with
// another UID. Objects that the plugin writes name the old UID as their owner, so the garbage
// collector would delete them.
func (w *Node) whenReplaced(ended func(error)) error {
	check := func(object any) {
		if node, ok := object.(*corev1.Node); ok && node.UID != w.First.UID {
			ended(fmt.Errorf("node %s was deleted and registered again (its UID was %s and is now %s): the plugin restarts, so that its objects belong to the new node",
				w.name, w.First.UID, node.UID))
		}
	}
	_, err := w.Core().V1().Nodes().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    check,
		UpdateFunc: func(_, now any) { check(now) },
		DeleteFunc: func(any) {
			ended(fmt.Errorf("node %s (UID %s) was deleted: the plugin restarts, and publishes the GPUs when the node is registered again", w.name, w.First.UID))
		},
	})
	if err != nil {
		return fmt.Errorf("watch node %s: %w", w.name, err)
	}
	return nil
}

// UpgradesOf returns the vendors whose drivers are being replaced on a node, with the signal
// that says so.
func UpgradesOf(vendors []hardware.Vendor, node *corev1.Node) map[gpu.Vendor]string {
	upgrades := map[gpu.Vendor]string{}
	for _, v := range vendors {
		signal := v.UpgradeSignal(node)
		if value := node.Labels[names.LabelDriverUpgrade]; value == names.DriverUpgradeAll || value == string(v.Name()) {
			signal = fmt.Sprintf("the node's label %s=%s", names.LabelDriverUpgrade, value)
		}
		if signal != "" {
			upgrades[v.Name()] = signal
		}
	}
	return upgrades
}
