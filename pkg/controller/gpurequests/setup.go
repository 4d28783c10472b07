package gpurequests

import (
	"context"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/publish/noderesources"
)

// Which namespaces get a GPUResourceMap.
const (
	Labeled = "Labeled"
	All     = "All"
)

// AddToCache keeps in memory what is needed of templates, beside what other parts of the controller
// keep.
func AddToCache(objects map[client.Object]cache.ByObject) {
	for o := range objects {
		if _, ok := o.(*resourceapi.ResourceClaimTemplate); ok {
			delete(objects, o) // has only those that the controller creates
		}
	}
	objects[&resourceapi.ResourceClaimTemplate{}] = cache.ByObject{Transform: trimTemplate}
}

func trimTemplate(o any) (any, error) {
	t, ok := o.(*resourceapi.ResourceClaimTemplate)
	if !ok {
		return o, nil
	}
	out := &resourceapi.ResourceClaimTemplate{TypeMeta: t.TypeMeta}
	out.Namespace, out.Name, out.UID, out.ResourceVersion, out.CreationTimestamp = t.Namespace, t.Name, t.UID, t.ResourceVersion, t.CreationTimestamp
	out.DeletionTimestamp, out.Finalizers, out.Labels = t.DeletionTimestamp, t.Finalizers, t.Labels
	out.Spec.Spec.Devices.Requests = t.Spec.Spec.Devices.Requests
	return out, nil
}

// Setup adds the controller to a manager.
func Setup(mgr manager.Manager, allNamespaces bool) error {
	r := &Reconciler{
		Client: mgr.GetClient(), Catalog: noderesources.NewCatalog(), Clock: clock.RealClock{},
		Events: mgr.GetEventRecorder(names.ControllerName), AllNamespaces: allNamespaces,
	}
	ofNamespace := handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []reconcile.Request {
		return []reconcile.Request{{NamespacedName: client.ObjectKey{Name: o.GetNamespace()}}}
	})
	ofAll := handler.EnqueueRequestsFromMapFunc(r.selected)
	return builder.ControllerManagedBy(mgr).Named("gpurequests").
		For(&corev1.Namespace{}).
		Watches(&resourceapi.ResourceClaimTemplate{}, ofNamespace).
		Watches(&v1beta1.GPUResourceMap{}, ofNamespace).
		Watches(&resourceapi.DeviceClass{}, ofAll).
		Watches(&corev1.Node{}, ofAll, builder.WithPredicates(servesOthers)).
		Watches(&v1beta1.GPUNode{}, ofAll, builder.WithPredicates(followsOthers)).
		Complete(r)
}

// selected returns requests for all namespaces whose pods get requests.
func (r *Reconciler) selected(ctx context.Context, _ client.Object) []reconcile.Request {
	var all corev1.NamespaceList
	if err := r.Client.List(ctx, &all, client.UnsafeDisableDeepCopy); err != nil {
		return nil
	}
	var requests []reconcile.Request
	for i := range all.Items {
		if r.selects(&all.Items[i]) {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKey{Name: all.Items[i].Name}})
		}
	}
	return requests
}

// servesOthers passes changes of the resources of nodes. Those that are there at the start concern
// nobody alone: all namespaces are reconciled then.
var servesOthers = predicate.Funcs{
	CreateFunc: func(e event.CreateEvent) bool { return !e.IsInInitialList },
	UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok := e.ObjectOld.(*corev1.Node)
		now, is := e.ObjectNew.(*corev1.Node)
		return ok && is && !slices.Equal(servedResources(before), servedResources(now))
	},
}

// followsOthers passes changes of the rules that nodes follow.
var followsOthers = predicate.Funcs{
	CreateFunc: func(e event.CreateEvent) bool { return !e.IsInInitialList },
	UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok := e.ObjectOld.(*v1beta1.GPUNode)
		now, is := e.ObjectNew.(*v1beta1.GPUNode)
		return ok && is && followed(before) != followed(now)
	},
}

// followed has the hashes of the rules that a node has applied and is about to.
func followed(n *v1beta1.GPUNode) (hashes [2]string) {
	for i, s := range []*v1beta1.ProfileSnapshot{n.Status.Applied, n.Status.Desired} {
		if s != nil {
			hashes[i] = s.Hash
		}
	}
	return hashes
}

// servedResources returns the names of the resources of which a node has some, sorted.
func servedResources(node *corev1.Node) []corev1.ResourceName {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(node.Status.Allocatable)), func(name corev1.ResourceName) bool {
		amount := node.Status.Allocatable[name]
		return amount.IsZero()
	})
}
