package read

import (
	"context"
	"fmt"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/pager"
)

// Progress is told how far a long list is.
type Progress interface {
	Say(format string, args ...any)
	Done()
}

type progressKey struct{}

// WithProgress returns a context with which lists, and whatever else takes long, say how far they
// are. nil: they say nothing.
func WithProgress(ctx context.Context, p Progress) context.Context {
	return context.WithValue(ctx, progressKey{}, p)
}

// ProgressOf is the progress of a context. Without one, it says nothing.
func ProgressOf(ctx context.Context) Progress {
	if p, ok := ctx.Value(progressKey{}).(Progress); ok {
		return p
	}
	return silent{}
}

type silent struct{}

func (silent) Say(string, ...any) {}
func (silent) Done()              {}

// Object is a pointer to an object of the API.
type Object[T any] interface {
	*T
	runtime.Object
}

// All reads all objects of a namespace, or of the cluster. No objects are an empty list, an error is
// the API server's.
func All[T any, P Object[T]](ctx context.Context, from Source, namespace string) ([]T, error) {
	return List[T, P](ctx, from, namespace, metav1.ListOptions{})
}

// TaintRules reads the DeviceTaintRules. A cluster that does not serve them has none.
func TaintRules(ctx context.Context, from Source) ([]resourceapi.DeviceTaintRule, error) {
	all, err := All[resourceapi.DeviceTaintRule](ctx, from, "")
	if Rules.unserved(err) {
		return nil, nil
	}
	return all, err
}

// List is All of the objects that the selectors select. They are read in pages.
func List[T any, P Object[T]](ctx context.Context, from Source, namespace string, only metav1.ListOptions) ([]T, error) {
	lists := cache.ToListerWatcherWithContext(from.ListWatch(P(new(T)), namespace, only))
	progress := ProgressOf(ctx)
	defer progress.Done()
	_, kind, _ := strings.Cut(fmt.Sprintf("%T", *new(T)), ".")
	read := 0
	pages := pager.New(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		page, err := lists.ListWithContext(ctx, o)
		if err == nil {
			read += meta.LenList(page)
			progress.Say("Reading objects of the kind %s: %d so far.", kind, read)
		}
		return page, err
	})
	found, _, err := pages.List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	all := []T{}
	err = meta.EachListItem(found, func(o runtime.Object) error {
		item, ok := any(o).(P)
		if !ok {
			return fmt.Errorf("the list has a %T", o)
		}
		all = append(all, *item)
		return nil
	})
	return all, err
}

// Into reads a kind into all, which is nil if it cannot be read. The gap has no reason if all of it
// was read. Where fallback is not empty, it is the namespace that is read if not all may be. The
// error is why the kind cannot be read, nil also if it may not be.
func Into[T any, P Object[T]](ctx context.Context, from Source, k Kind, fallback string, all *[]T) (Gap, error) {
	namespace := metav1.NamespaceAll
	for {
		var err error
		*all, err = List[T, P](ctx, from, namespace, k.Only)
		switch {
		case err == nil:
			return k.within(namespace), nil
		case k.unserved(err):
			*all = nil
			return Gap{What: k.Name}, nil
		case apierrors.IsForbidden(err) && k.namespaced() && namespace == "" && fallback != "":
			namespace = fallback
		case apierrors.IsForbidden(err):
			return k.gap(err), nil
		default:
			return k.gap(err), err
		}
	}
}
