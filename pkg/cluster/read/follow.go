package read

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/tranche-dev/tranche/pkg/sleep"
	"github.com/tranche-dev/tranche/pkg/text"
)

// retryInterval is the wait after an error, forbiddenInterval after a forbidden request.
const retryInterval, forbiddenInterval = 2 * time.Second, time.Minute

// Follow keeps a store up to date with a kind until ctx ends. It lists and watches. Without the right
// to watch, it lists periodically. If it may not list all namespaces, it lists the namespace fallback,
// unless that is empty. After each list it calls report, without a message if everything was read.
func Follow(ctx context.Context, from Source, k Kind, fallback string, store cache.ReflectorStore, report func(text.Unread)) {
	namespace, listed := metav1.NamespaceAll, false
	for ctx.Err() == nil {
		observed := &observingStore{ReflectorStore: store, listed: func() { listed = true; report(k.within(namespace)) }}
		err := cache.NewReflectorWithOptions(from.ListWatch(k.Example, namespace, k.Only), k.Example, observed,
			cache.ReflectorOptions{Name: "read", TypeDescription: k.Resource}).ListAndWatchWithContext(ctx)
		wait := retryInterval
		switch {
		case err == nil || observed.done && !apierrors.IsForbidden(err):
		case observed.done:
			wait = 5 * retryInterval // list without watch
		case k.unserved(err):
			_ = store.Replace(nil, "") // cannot fail without objects
			report(k.Unread(nil))
			wait = forbiddenInterval
		case apierrors.IsForbidden(err) && k.namespaced() && namespace == "" && fallback != "":
			namespace = fallback
			continue
		default:
			unread := k.Unread(err)
			if apierrors.IsForbidden(err) {
				namespace, wait = metav1.NamespaceAll, forbiddenInterval
			} else if listed {
				unread.Consequence = "what is shown of " + k.Resource + " may be outdated"
			}
			report(unread)
		}
		if sleep.For(ctx, wait) != nil {
			return
		}
	}
}

// observingStore reports when a kind was listed.
type observingStore struct {
	cache.ReflectorStore
	listed func()
	done   bool
}

// Replace implements cache.ReflectorStore.
func (n *observingStore) Replace(all []any, version string) error {
	err := n.ReflectorStore.Replace(all, version)
	if err == nil {
		n.done = true
		n.listed()
	}
	return err
}

// Transformer implements cache.TransformingStore.
func (n *observingStore) Transformer() cache.TransformFunc {
	if t, ok := n.ReflectorStore.(cache.TransformingStore); ok {
		return t.Transformer()
	}
	return nil
}
