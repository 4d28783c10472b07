package nodewatch

import (
	"context"
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
	"k8s.io/klog/v2"

	"github.com/tranche-dev/tranche/pkg/hardware"
)

// WatchOwners calls changed whenever the other systems that serve the node's GPUs may have
// changed. Each watch is limited to this node. Processes cannot be watched, so they are
// checked at intervals.
func WatchOwners(ctx context.Context, client kubernetes.Interface, node *Node, proc string, interval time.Duration, changed func(Owners)) error {
	programs := &processes{proc: proc}
	narrow := func(tweak func(*metav1.ListOptions)) informers.SharedInformerFactory {
		return informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTweakListOptions(tweak), informers.WithTransform(WithoutBulk))
	}
	factories := []informers.SharedInformerFactory{node}
	nodeLister := node.Core().V1().Nodes()
	watched := []cache.SharedIndexInformer{nodeLister.Informer()}
	var drivers []string
	var sliceListers []resourcelisters.ResourceSliceLister
	for _, v := range node.Vendors {
		programs.programs = append(programs.programs, v.OwnerPrograms()...)
		drivers = append(drivers, v.OwnerDRADrivers()...)
	}
	for _, driver := range drivers {
		slices := narrow(func(o *metav1.ListOptions) {
			o.FieldSelector = fields.Set{
				resourceapi.ResourceSliceSelectorNodeName: node.name,
				resourceapi.ResourceSliceSelectorDriver:   driver,
			}.String()
		})
		informer := slices.Resource().V1().ResourceSlices()
		factories, watched = append(factories, slices), append(watched, informer.Informer())
		sliceListers = append(sliceListers, informer.Lister())
	}

	// One place is enough: a signal that waits covers everything before it.
	signal := make(chan struct{}, 1)
	wake := func(any) {
		select {
		case signal <- struct{}{}:
		default:
		}
	}
	handler := cache.ResourceEventHandlerFuncs{AddFunc: wake, UpdateFunc: func(_, _ any) { wake(nil) }, DeleteFunc: wake}
	for _, informer := range watched {
		if _, err := informer.AddEventHandler(handler); err != nil {
			return err
		}
	}
	for _, factory := range factories {
		factory.StartWithContext(ctx)
	}
	look := func() {
		thisNode, _ := nodeLister.Lister().Get(node.name)
		var theirSlices []*resourceapi.ResourceSlice
		for _, lister := range sliceListers {
			ofDriver, _ := lister.List(labels.Everything())
			theirSlices = append(theirSlices, ofDriver...)
		}
		changed(findOwners(node.Vendors, hardware.Evidence{Node: thisNode, Slices: theirSlices, Running: programs.running}))
	}
	if err := waitForSync(ctx, factories...); err != nil {
		return err
	}
	lookAtProcesses := func() (changed bool) {
		changed, err := programs.look()
		if err != nil {
			klog.FromContext(ctx).Error(err, "Cannot list the programs of other systems on this node; the last list stays")
		}
		return changed
	}
	lookAtProcesses()
	look()
	go func() {
		ticker := time.NewTicker(interval)
		defer ticker.Stop()
		for {
			select {
			case <-signal:
				look()
			case <-ticker.C:
				if lookAtProcesses() {
					look()
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	return nil
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

// Get reads the node that the plugin runs on. When a node starts, the API server may be
// unavailable or may not have the node yet, so Get retries for SyncTimeout.
func Get(ctx context.Context, client kubernetes.Interface, name string) (node *corev1.Node, err error) {
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
