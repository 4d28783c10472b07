package gpurequests

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1beta1"
)

// Which changes of nodes concern the amounts for extended resources.
func TestWhatConcernsAllNamespaces(t *testing.T) {
	node := func(resources map[corev1.ResourceName]string) *corev1.Node {
		n := &corev1.Node{Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{}}}
		for name, amount := range resources {
			n.Status.Allocatable[name] = resource.MustParse(amount)
		}
		return n
	}
	follows := func(applied, desired string) *v1beta1.GPUNode {
		n := &v1beta1.GPUNode{}
		if applied != "" {
			n.Status.Applied = &v1beta1.ProfileSnapshot{Hash: applied}
		}
		if desired != "" {
			n.Status.Desired = &v1beta1.ProfileSnapshot{Hash: desired}
		}
		return n
	}
	for name, tt := range map[string]struct {
		of          predicate.Predicate
		before, now client.Object
		want        bool
	}{
		"a device plugin comes":      {servesOthers, node(nil), node(map[corev1.ResourceName]string{"nvidia.com/gpu": "8"}), true},
		"one has nothing to offer":   {servesOthers, node(nil), node(map[corev1.ResourceName]string{"nvidia.com/gpu": "0"}), false},
		"it has fewer":               {servesOthers, node(map[corev1.ResourceName]string{"a": "8"}), node(map[corev1.ResourceName]string{"a": "7"}), false},
		"not nodes":                  {servesOthers, follows("a", "b"), follows("a", "c"), false},
		"a profile is applied":       {followsOthers, follows("a", "b"), follows("b", "b"), true},
		"another one is desired":     {followsOthers, follows("a", "a"), follows("a", "b"), true},
		"the first one is":           {followsOthers, follows("", ""), follows("", "b"), true},
		"a report":                   {followsOthers, follows("a", "b"), follows("a", "b"), false},
		"not nodes that report GPUs": {followsOthers, node(nil), node(nil), false},
	} {
		assert.Equal(t, tt.want, tt.of.Update(event.UpdateEvent{ObjectOld: tt.before, ObjectNew: tt.now}), name)
	}
	for _, p := range []predicate.Predicate{servesOthers, followsOthers} {
		assert.False(t, p.Create(event.CreateEvent{IsInInitialList: true}), "all are reconciled at the start")
		assert.True(t, p.Create(event.CreateEvent{}))
	}
}

// Only namespaces whose pods get requests are reconciled when a class changes.
func TestSelectedNamespaces(t *testing.T) {
	other := namespace("")
	other.Name = "other"
	w := newWorld(t, namespace("true"), other)
	assert.Equal(t, []reconcile.Request{{NamespacedName: client.ObjectKey{Name: team}}}, w.r.selected(t.Context(), nil))
	w.r.AllNamespaces = true
	assert.Len(t, w.r.selected(t.Context(), nil), 2)
}

// Templates are kept by one cache only, with what they request.
func TestCachedTemplates(t *testing.T) {
	kept := map[client.Object]cache.ByObject{&resourceapi.ResourceClaimTemplate{}: {}, &corev1.Pod{}: {}}
	AddToCache(kept)
	require.Len(t, kept, 2)
	for o, by := range kept {
		if _, ok := o.(*resourceapi.ResourceClaimTemplate); ok {
			full := template("a", "small", 1)
			full.Annotations = map[string]string{"much": "text"}
			got, err := by.Transform(full)
			require.NoError(t, err)
			full.Annotations = nil
			assert.Equal(t, full, got)
			same, err := by.Transform("a tombstone")
			require.NoError(t, err)
			assert.Equal(t, "a tombstone", same)
		}
	}
}

// What cannot be read or written is tried again, and what a cache that is behind has tried in vain is not.
func TestReconcileFails(t *testing.T) {
	away := errors.New("away")
	gone := namespace("true")
	gone.DeletionTimestamp, gone.Finalizers = ptr.To(metav1.Now()), []string{"f"}
	ends := &apierrors.StatusError{ErrStatus: metav1.Status{Reason: metav1.StatusReasonForbidden, Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}}}}
	for name, tt := range map[string]struct {
		of    *corev1.Namespace
		verb  string
		err   error
		fails string
	}{
		"the namespace":     {namespace("true"), "get namespace", away, "away"},
		"the map":           {namespace("true"), "get map", away, "read the GPUResourceMap of namespace team-a: away"},
		"classes":           {namespace("true"), "list *v1.DeviceClassList", away, "list the DeviceClasses: away"},
		"templates":         {namespace("true"), "list *v1.ResourceClaimTemplateList", away, "list the ResourceClaimTemplates of namespace team-a: away"},
		"nodes":             {namespace("true"), "list *v1.NodeList", away, "list the nodes: away"},
		"GPUNodes":          {namespace("true"), "list *v1beta1.GPUNodeList", away, "list the GPUNodes: away"},
		"a write":           {namespace("true"), "create", away, "write the GPUResourceMap of namespace team-a: away"},
		"an update":         {namespace("true"), "update", away, "write the GPUResourceMap of namespace team-a: away"},
		"a late cache":      {namespace("true"), "update", apierrors.NewConflict(resourceapi.Resource("x"), "x", away), ""},
		"it is there":       {namespace("true"), "create", apierrors.NewAlreadyExists(resourceapi.Resource("x"), "x"), ""},
		"it ends meanwhile": {namespace("true"), "create", ends, ""},
		"it ends":           {gone, "create", away, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, tt.of, class("small", "nvidia.com/mig-1g.10gb", isMIG))
			if tt.verb == "update" {
				require.NoError(t, w.r.Client.Create(t.Context(), &v1beta1.GPUResourceMap{ObjectMeta: metav1.ObjectMeta{Namespace: team, Name: names.GPUResourceMapName}}))
			}
			w.r.Client = interceptor.NewClient(w.r.Client.(client.WithWatch), interceptor.Funcs{
				Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
					if _, ok := o.(*corev1.Namespace); ok && tt.verb == "get namespace" || !ok && tt.verb == "get map" {
						return tt.err
					}
					return c.Get(ctx, key, o, opts...)
				},
				List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
					if tt.verb == fmt.Sprintf("list %T", list) {
						return tt.err
					}
					return c.List(ctx, list, opts...)
				},
				Update: func(context.Context, client.WithWatch, client.Object, ...client.UpdateOption) error { return tt.err },
				Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
					if tt.verb == "create" {
						return tt.err
					}
					return c.Create(ctx, o, opts...)
				},
			})
			_, err := w.r.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Name: team}})
			if tt.fails == "" {
				require.NoError(t, err)
				return
			}
			require.EqualError(t, err, tt.fails)
		})
	}
}
