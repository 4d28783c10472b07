package controller

import (
	"context"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/tranche-dev/tranche/api/v1alpha1"
)

// freeze has the controller's caches stay as they are now, until thaw.
func (w *world) freeze() {
	var objects []client.Object
	for _, list := range []client.ObjectList{
		&corev1.NodeList{}, &corev1.PodList{}, &resourceapi.ResourceClaimList{}, &resourceapi.ResourceSliceList{}, &resourceapi.DeviceClassList{},
		&v1alpha1.GPUNodeList{}, &v1alpha1.PartitionProfileList{}, &v1alpha1.PartitionPlanList{},
	} {
		require.NoError(w.t, w.api.List(w.t.Context(), list))
		require.NoError(w.t, meta.EachListItem(list, func(o runtime.Object) error {
			objects = append(objects, o.DeepCopyObject().(client.Object))
			return nil
		}))
	}
	w.stale = newAPI(w.api.Scheme(), objects...)
}

func (w *world) thaw() { w.stale = nil }

// cached answers what the controller asks its caches, where they are late.
func (w *world) cached() interceptor.Funcs {
	return interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if w.stale != nil {
				c = w.stale
			}
			return c.Get(ctx, key, o, opts...)
		},
		List: func(ctx context.Context, c client.WithWatch, l client.ObjectList, opts ...client.ListOption) error {
			if w.stale != nil {
				c = w.stale
			}
			return c.List(ctx, l, opts...)
		},
	}
}
