package gpurequests

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/controller/nslabel"
	"github.com/tranche-dev/tranche/pkg/publish/noderesources"
)

// turn is how long selectors of one namespace are evaluated before it is another's turn.
const turn = 2 * time.Second

// Reconciler keeps the GPUResourceMap of a namespace.
type Reconciler struct {
	Client  client.Client
	Catalog *noderesources.Catalog
	Clock   clock.PassiveClock
	Events  events.EventRecorder
	// AllNamespaces: the label is needed only to leave a namespace out.
	AllNamespaces bool

	label nslabel.Label
}

// Reconcile writes the map of the namespace.
func (r *Reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	var namespace corev1.Namespace
	if err := r.Client.Get(ctx, client.ObjectKey{Name: request.Name}, &namespace); err != nil {
		r.label.Forget(request.Name)
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if namespace.DeletionTimestamp != nil {
		return reconcile.Result{}, nil
	}
	r.label.Check(r.Events, &namespace, names.LabelRequestGPUResources, "", names.ValueTrue, names.ValueFalse)
	written := &v1beta1.GPUResourceMap{}
	err := r.Client.Get(ctx, client.ObjectKey{Namespace: namespace.Name, Name: names.GPUResourceMapName}, written)
	if client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, fmt.Errorf("read the GPUResourceMap of namespace %s: %w", namespace.Name, err)
	}
	exists := err == nil
	if !r.selects(&namespace) {
		if exists {
			err = r.Client.Delete(ctx, written)
		}
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	wanted, complete, err := r.specOf(ctx, namespace.Name)
	if err != nil {
		return reconcile.Result{}, err
	}
	switch {
	case !exists:
		err = r.Client.Create(ctx, &v1beta1.GPUResourceMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace.Name, Name: names.GPUResourceMapName}, Spec: *wanted,
		})
		if apierrors.IsAlreadyExists(err) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
			err = nil // The cache is behind, and reports the change.
		}
	case !maps.Equal(written.Spec.Templates, wanted.Templates) || !maps.Equal(written.Spec.ExtendedResources, wanted.ExtendedResources):
		written.Spec = *wanted
		err = r.Client.Update(ctx, written)
		if apierrors.IsConflict(err) {
			err = nil
		}
	}
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("write the GPUResourceMap of namespace %s: %w", namespace.Name, err)
	}
	if !complete {
		return reconcile.Result{RequeueAfter: time.Millisecond}, nil
	}
	return reconcile.Result{}, nil
}

// selects reports whether pods of the namespace get requests.
func (r *Reconciler) selects(n *corev1.Namespace) bool {
	value := n.Labels[names.LabelRequestGPUResources]
	return value == names.ValueTrue || r.AllNamespaces && value != names.ValueFalse
}

// specOf returns the amounts for a namespace. They are not complete if evaluating selectors took
// longer than a turn.
func (r *Reconciler) specOf(ctx context.Context, namespace string) (out *v1beta1.GPUResourceMapSpec, complete bool, err error) {
	var classes resourceapi.DeviceClassList
	if err := r.Client.List(ctx, &classes, client.UnsafeDisableDeepCopy); err != nil {
		return nil, false, fmt.Errorf("list the DeviceClasses: %w", err)
	}
	byName := map[string]*resourceapi.DeviceClass{}
	for i := range classes.Items {
		byName[classes.Items[i].Name] = &classes.Items[i]
	}
	var templates resourceapi.ResourceClaimTemplateList
	if err := r.Client.List(ctx, &templates, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, false, fmt.Errorf("list the ResourceClaimTemplates of namespace %s: %w", namespace, err)
	}
	out = &v1beta1.GPUResourceMapSpec{Templates: map[string]v1beta1.GPUResources{}}
	if out.ExtendedResources, err = r.ofExtendedResources(ctx, classes.Items); err != nil {
		return nil, false, err
	}
	// Pods name new templates soonest.
	all := slices.Clone(templates.Items)
	slices.SortFunc(all, func(a, b resourceapi.ResourceClaimTemplate) int {
		return b.CreationTimestamp.Compare(a.CreationTimestamp.Time)
	})
	until := r.Clock.Now().Add(turn)
	for i := range all[:min(len(all), v1beta1.MaxMappedTemplates)] {
		if r.Clock.Now().After(until) {
			return out, false, nil
		}
		amount := r.Catalog.Least(ctx, &all[i].Spec.Spec, func(name string) *resourceapi.DeviceClass { return byName[name] })
		put(out.Templates, all[i].Name, amount)
	}
	return out, true, ctx.Err()
}

// put adds an amount that is not zero. A claim for more than the API allows takes at least as much.
func put(m map[string]v1beta1.GPUResources, name string, a noderesources.Amount) {
	if a == (noderesources.Amount{}) {
		return
	}
	m[name] = v1beta1.GPUResources{MemoryMiB: min(a.MemoryMiB, v1beta1.MaxMappedMemoryMiB), Compute: min(a.Compute, v1beta1.MaxMappedCompute)}
}
