package read

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/tranche-dev/tranche/pkg/sleep"
)

const (
	// again is how long to wait after an error, forbidden after a refusal.
	again, forbidden = 2 * time.Second, time.Minute
)

// Follow keeps a store up to date with a kind until ctx ends. It lists and watches, without the
// right to watch it lists now and then. Where fallback is not empty, it is the namespace that is
// read if not all may be. After each list told is called, with a gap whose reason is empty if all
// was read.
func Follow(ctx context.Context, from Source, k Kind, fallback string, store cache.ReflectorStore, told func(Gap)) {
	namespace, ever := metav1.NamespaceAll, false
	for ctx.Err() == nil {
		noted := &noting{ReflectorStore: store, listed: func() { ever = true; told(k.within(namespace)) }}
		err := cache.NewReflectorWithOptions(from.ListWatch(k.Example, namespace, k.Only), k.Example, noted,
			cache.ReflectorOptions{Name: "read", TypeDescription: k.Name}).ListAndWatchWithContext(ctx)
		wait := again
		switch {
		case err == nil || noted.done && !apierrors.IsForbidden(err):
		case noted.done:
			wait = 5 * again // it may list, and not watch
		case k.unserved(err):
			_ = store.Replace(nil, "") // of nothing, it cannot fail
			told(Gap{What: k.Name})
			wait = forbidden
		case apierrors.IsForbidden(err) && k.namespaced() && namespace == "" && fallback != "":
			namespace = fallback
			continue
		default:
			gap := k.gap(err)
			if apierrors.IsForbidden(err) {
				namespace, wait = metav1.NamespaceAll, forbidden
			} else if ever {
				gap.Means = "What is shown of them may be old."
			}
			told(gap)
		}
		if sleep.For(ctx, wait) != nil {
			return
		}
	}
}

// noting notes that a kind was listed.
type noting struct {
	cache.ReflectorStore
	listed func()
	done   bool
}

// Replace implements cache.ReflectorStore.
func (n *noting) Replace(all []any, version string) error {
	err := n.ReflectorStore.Replace(all, version)
	if err == nil {
		n.done = true
		n.listed()
	}
	return err
}

// Transformer implements cache.TransformingStore.
func (n *noting) Transformer() cache.TransformFunc {
	if t, ok := n.ReflectorStore.(cache.TransformingStore); ok {
		return t.Transformer()
	}
	return nil
}
