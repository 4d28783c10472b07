package uninstall

import (
	"context"
	"errors"
	"fmt"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/client"
	"github.com/tranche-dev/tranche/pkg/lists"
)

// page is the number of objects to read at once.
const page = 500

// Kinds of which only the metadata is read. The slices of a node with 8 GPUs are 180 kB of JSON.
var (
	slicesKind    = resourceapi.SchemeGroupVersion.WithResource("resourceslices")
	templatesKind = resourceapi.SchemeGroupVersion.WithResource("resourceclaimtemplates")
	nodesKind     = schema.GroupVersionResource{Version: "v1", Resource: "nodes"}
	podsKind      = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	gpuNodesKind  = v1beta1.GroupVersion.WithResource(client.ResourceGPUNodes)
	profilesKind  = v1beta1.GroupVersion.WithResource(client.ResourcePartitionProfiles)
	mapsKind      = v1beta1.GroupVersion.WithResource("gpuresourcemaps")
	plansKind     = v1beta1.GroupVersion.WithResource(client.ResourcePartitionPlans)
)

// published selects the ResourceSlices of the driver.
var published = metav1.ListOptions{FieldSelector: resourceapi.ResourceSliceSelectorDriver + "=" + names.DriverName}

func labeled(selector string) metav1.ListOptions { return metav1.ListOptions{LabelSelector: selector} }

// find returns names, labels, annotations and owners of the objects of a kind, in a namespace or, if
// that is empty, in all. It reads at most most objects, or all if most is 0. It returns none if the cluster does not
// serve the kind.
func (c *Config) find(ctx context.Context, kind schema.GroupVersionResource, namespace string, o metav1.ListOptions, most int) (found []metav1.ObjectMeta, err error) {
	o.Limit = page
	if most > 0 {
		o.Limit = int64(most)
	}
	err = pages(ctx, func(ctx context.Context, next string) (string, error) {
		o.Continue = next
		list, err := c.Objects.Resource(kind).Namespace(namespace).List(ctx, o)
		if err != nil {
			return "", err
		}
		for i := range list.Items {
			m := &list.Items[i].ObjectMeta
			found = append(found, metav1.ObjectMeta{Namespace: m.Namespace, Name: m.Name, Labels: m.Labels, Annotations: m.Annotations, OwnerReferences: m.OwnerReferences})
		}
		if most > 0 && len(found) >= most {
			return "", nil
		}
		return list.Continue, nil
	})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("list %s: %w", kind.GroupResource(), err)
	}
	return found, nil
}

// deleteFound deletes objects of a kind, and continues if one cannot be deleted.
func (c *Config) deleteFound(ctx context.Context, kind schema.GroupVersionResource, found []metav1.ObjectMeta) error {
	var errs []error
	for i := range found {
		o := &found[i]
		if err := c.deleteOne(ctx, kind, o); err != nil && !apierrors.IsNotFound(err) {
			errs = append(errs, fmt.Errorf("delete %s of %s: %w", cache.MetaObjectToName(o), kind.GroupResource(), err))
		}
	}
	return errors.Join(errs...)
}

func (c *Config) deleteOne(ctx context.Context, kind schema.GroupVersionResource, o *metav1.ObjectMeta) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return c.Objects.Resource(kind).Namespace(o.Namespace).Delete(ctx, o.Name, metav1.DeleteOptions{})
}

func pages(ctx context.Context, read func(ctx context.Context, next string) (string, error)) error {
	one := func(next string) (string, error) {
		ctx, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		return read(ctx, next)
	}
	for next := ""; ; {
		following, err := one(next)
		if err != nil || following == "" {
			return err
		}
		next = following
	}
}

func namesOf(found []metav1.ObjectMeta) (all []string) {
	return lists.Map(found, func(o metav1.ObjectMeta) string { return o.Name })
}

// few is the maximum number of objects of a kind to name.
const few = 5

func first(names []string) string {
	if len(names) > few {
		return strings.Join(names[:few], ", ") + ", …"
	}
	return strings.Join(names, ", ")
}

func some(names []string) string { return fmt.Sprintf("%d (%s)", len(names), first(names)) }
