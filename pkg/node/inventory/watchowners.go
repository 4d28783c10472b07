package inventory

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	resourcelisters "k8s.io/client-go/listers/resource/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/dynamic-resource-allocation/deviceattribute"
	"k8s.io/klog/v2"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/hardware"
)

// WatchOwners calls changed whenever the other systems that serve the node's GPUs may have
// changed. Each watch is limited to this node. Processes cannot be watched, so they are
// checked at intervals.
func WatchOwners(ctx context.Context, client kubernetes.Interface, node *Node, proc string, interval time.Duration, changed func(Owners)) error {
	w := &ownerWatch{node: node, programs: &processes{proc: proc}, changed: changed, signal: make(chan struct{}, 1)}
	for _, v := range node.Vendors {
		w.programs.programs = append(w.programs.programs, v.OwnerPrograms()...)
	}
	factories, err := w.informers(client)
	if err != nil {
		return err
	}
	for _, factory := range factories {
		factory.StartWithContext(ctx)
	}
	if err := waitForSync(ctx, factories...); err != nil {
		return err
	}
	w.lookAtProcesses(ctx)
	w.look()
	go w.run(ctx, interval)
	return nil
}

type ownerWatch struct {
	node     *Node
	programs *processes
	// slices list the ResourceSlices of other drivers.
	slices  resourcelisters.ResourceSliceLister
	changed func(Owners)
	// signal gets a value when an informer has news. One place is enough: a signal that
	// waits covers everything before it.
	signal chan struct{}
}

// informers watches the node, and its ResourceSlices of other drivers.
func (w *ownerWatch) informers(client kubernetes.Interface) ([]informers.SharedInformerFactory, error) {
	others := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTweakListOptions(func(o *metav1.ListOptions) {
		o.FieldSelector = fields.AndSelectors(
			fields.OneTermEqualSelector(resourceapi.ResourceSliceSelectorNodeName, w.node.name),
			fields.OneTermNotEqualSelector(resourceapi.ResourceSliceSelectorDriver, names.DriverName),
		).String()
	}), informers.WithTransform(addressesOnly))
	published := others.Resource().V1().ResourceSlices()
	w.slices = published.Lister()
	factories := []informers.SharedInformerFactory{w.node, others}
	watched := []cache.SharedIndexInformer{w.node.Core().V1().Nodes().Informer(), published.Informer()}
	wake := func(any) {
		select {
		case w.signal <- struct{}{}:
		default:
		}
	}
	handler := cache.ResourceEventHandlerFuncs{AddFunc: wake, UpdateFunc: func(_, _ any) { wake(nil) }, DeleteFunc: wake}
	for _, informer := range watched {
		if _, err := informer.AddEventHandler(handler); err != nil {
			return nil, fmt.Errorf("watch other systems that serve GPUs of node %s: %w", w.node.name, err)
		}
	}
	return factories, nil
}

// addressesOnly keeps of a ResourceSlice whose devices have which PCI addresses: a node can have
// many devices of other drivers.
func addressesOnly(object any) (any, error) {
	s, ok := object.(*resourceapi.ResourceSlice)
	if !ok {
		return object, nil
	}
	out := &resourceapi.ResourceSlice{TypeMeta: s.TypeMeta}
	out.Name, out.UID, out.ResourceVersion = s.Name, s.UID, s.ResourceVersion
	out.Spec.Driver = s.Spec.Driver
	for i := range s.Spec.Devices {
		device := resourceapi.Device{Name: s.Spec.Devices[i].Name}
		if address, ok := s.Spec.Devices[i].Attributes[deviceattribute.StandardDeviceAttributePCIBusID]; ok {
			device.Attributes = map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{deviceattribute.StandardDeviceAttributePCIBusID: address}
		}
		out.Spec.Devices = append(out.Spec.Devices, device)
	}
	return out, nil
}

// run calls changed until ctx ends.
func (w *ownerWatch) run(ctx context.Context, interval time.Duration) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-w.signal:
			w.look()
		case <-ticker.C:
			if w.lookAtProcesses(ctx) {
				w.look()
			}
		case <-ctx.Done():
			return
		}
	}
}

// look calls changed with the owners that were found.
func (w *ownerWatch) look() {
	node, _ := w.node.Core().V1().Nodes().Lister().Get(w.node.name)
	published, _ := w.slices.List(labels.Everything())
	others := findOwners(w.node.Vendors, hardware.Evidence{Node: node, Slices: published, Running: w.programs.running})
	w.changed(append(w.node.unmanaged(), others...))
}

// lookAtProcesses updates the running programs, and reports whether they have changed.
func (w *ownerWatch) lookAtProcesses(ctx context.Context) (changed bool) {
	changed, err := w.programs.look()
	if err != nil {
		klog.FromContext(ctx).Error(err, "Cannot list the programs of other systems on this node; the last list stays")
	}
	return changed
}

// SyncTimeout is how long the first reads of the API server may take.
const SyncTimeout = time.Minute

func waitForSync(ctx context.Context, factories ...informers.SharedInformerFactory) error {
	ctx, cancel := context.WithTimeout(ctx, SyncTimeout)
	defer cancel()
	for _, factory := range factories {
		synced := factory.WaitForCacheSyncWithContext(ctx)
		if err := synced.AsError(); err != nil {
			return err
		}
	}
	return nil
}

// GetNode reads the node that the plugin runs on. When a node starts, the API server may be
// unavailable or may not have the node yet, so GetNode retries for SyncTimeout.
func GetNode(ctx context.Context, client kubernetes.Interface, name string) (node *corev1.Node, err error) {
	var last error
	err = wait.PollUntilContextTimeout(ctx, time.Second, SyncTimeout, true, func(ctx context.Context) (bool, error) {
		node, last = client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsForbidden(last) {
			return false, last
		}
		return last == nil, nil
	})
	if err != nil && last != nil {
		return nil, last
	}
	return node, err
}
