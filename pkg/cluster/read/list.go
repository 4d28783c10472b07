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

	"github.com/tranche-dev/tranche/pkg/text"
)

// Progress reports the progress of a long list.
type Progress interface {
	Say(format string, args ...any)
	Done()
}

type progressKey struct{}

// WithProgress returns a context in which lists and other long calls report their progress to p. They
// report nothing if p is nil.
func WithProgress(ctx context.Context, p Progress) context.Context {
	return context.WithValue(ctx, progressKey{}, p)
}

// ProgressOf returns the Progress of a context, which reports nothing by default.
func ProgressOf(ctx context.Context) Progress {
	if p, ok := ctx.Value(progressKey{}).(Progress); ok {
		return p
	}
	return silent{}
}

type silent struct{}

func (silent) Say(string, ...any) {}
func (silent) Done()              {}

// Object is a pointer to an API object.
type Object[T any] interface {
	*T
	runtime.Object
}

// All reads all objects of a namespace, or of the cluster. Without objects, the list is empty and not
// nil. Errors are those of the API server.
func All[T any, P Object[T]](ctx context.Context, from Source, namespace string) ([]T, error) {
	return List[T, P](ctx, from, namespace, metav1.ListOptions{})
}

// TaintRules reads the DeviceTaintRules, or none if the cluster does not serve them.
func TaintRules(ctx context.Context, from Source) ([]resourceapi.DeviceTaintRule, error) {
	all, err := All[resourceapi.DeviceTaintRule](ctx, from, "")
	if Rules.unserved(err) {
		return nil, nil
	}
	return all, err
}

// List reads the objects that the selectors select, in pages.
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

// Into reads a kind into all, which is nil if the kind cannot be read. If it may not list all
// namespaces, it lists the namespace fallback, unless that is empty. The Unread has no message if
// everything was read. The error is nil if the request was forbidden.
func Into[T any, P Object[T]](ctx context.Context, from Source, k Kind, fallback string, all *[]T) (text.Unread, error) {
	namespace := metav1.NamespaceAll
	for {
		var err error
		*all, err = List[T, P](ctx, from, namespace, k.Only)
		switch {
		case err == nil:
			return k.within(namespace), nil
		case k.unserved(err):
			return k.Unread(nil), nil
		case apierrors.IsForbidden(err) && k.namespaced() && namespace == "" && fallback != "":
			namespace = fallback
		case apierrors.IsForbidden(err):
			return k.Unread(err), nil
		default:
			return k.Unread(err), err
		}
	}
}
