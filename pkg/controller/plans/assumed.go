package plans

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// assumed are objects, by name, that were written or read at the API server and that a cache may not
// have yet.
type assumed[T client.Object] map[string]T

func assume[T client.Object](all []T) assumed[T] {
	out := assumed[T]{}
	for _, o := range all {
		out[o.GetName()] = o
	}
	return out
}

// newest returns the newest versions of what a cache has, and forgets those that it has caught up
// with. If late, the cache may also lack objects.
func (a assumed[T]) newest(cached []T, late bool) []T {
	known := map[string]bool{}
	for i, o := range cached {
		known[o.GetName()] = true
		if newer, ok := a[o.GetName()]; ok && isNewer(newer, o) {
			cached[i] = newer
		} else {
			delete(a, o.GetName())
		}
	}
	for name, o := range a {
		switch {
		case known[name]:
		case late:
			cached = append(cached, o)
		default:
			delete(a, name)
		}
	}
	return cached
}

// reread reads an object at the API server, and reports whether that worked.
func (a assumed[T]) reread(ctx context.Context, from client.Reader, o T) bool {
	live, ok := o.DeepCopyObject().(T)
	err := from.Get(ctx, client.ObjectKeyFromObject(o), live)
	if delete(a, o.GetName()); ok && err == nil {
		a[o.GetName()] = live
	}
	return err == nil || apierrors.IsNotFound(err)
}

// isNewer reports whether an object is newer than another one.
func isNewer(a, b client.Object) bool {
	if a.GetUID() != b.GetUID() {
		return !a.GetCreationTimestamp().Time.Before(b.GetCreationTimestamp().Time)
	}
	c, err := resourceversion.CompareResourceVersion(a.GetResourceVersion(), b.GetResourceVersion())
	return err == nil && c > 0
}

func pointers[T any](items []T) []*T {
	out := make([]*T, len(items))
	for i := range items {
		out[i] = &items[i]
	}
	return out
}
