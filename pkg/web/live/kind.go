package live

import (
	"fmt"
	"reflect"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/tools/cache"
)

// kind keeps the objects of a kind. It is the store of a reflector. The Store's lock protects it.
type kind[T any] struct {
	store *Store
	// keep makes of an object what is kept of it, nil for nothing.
	keep func(o any) *T
	// changed is called with what was kept before and is kept now, nil for nothing, with the lock held.
	changed func(before, now *T)
	all     map[string]*T
}

func newKind[T any](s *Store, keep func(any) *T, changed func(before, now *T)) *kind[T] {
	return &kind[T]{store: s, keep: keep, changed: changed, all: map[string]*T{}}
}

// trimmed keeps the objects of a kind without what nobody needs.
func trimmed[T any](trim func(*T) *T) func(any) *T {
	return func(o any) *T {
		if object, ok := o.(*T); ok {
			return trim(object)
		}
		return nil
	}
}

// whole keeps the objects of a kind as they are.
func whole[T any](o any) *T {
	object, _ := o.(*T)
	return object
}

func keyOf(o any) (string, error) {
	if gone, ok := o.(cache.DeletedFinalStateUnknown); ok {
		return gone.Key, nil
	}
	m, err := meta.Accessor(o)
	if err != nil {
		return "", fmt.Errorf("object of unknown kind: %w", err)
	}
	if m.GetNamespace() == "" {
		return m.GetName(), nil
	}
	return m.GetNamespace() + "/" + m.GetName(), nil
}

// Add implements cache.ReflectorStore.
func (k *kind[T]) Add(o any) error { return k.Update(o) }

// Update implements cache.ReflectorStore.
func (k *kind[T]) Update(o any) error { return k.set(o, k.keep(o)) }

// Delete implements cache.ReflectorStore.
func (k *kind[T]) Delete(o any) error { return k.set(o, nil) }

// set keeps of an object what is given, nil for nothing.
func (k *kind[T]) set(o any, now *T) error {
	key, err := keyOf(o)
	if err != nil {
		return err
	}
	k.store.mu.Lock()
	defer k.store.mu.Unlock()
	k.put(key, now)
	k.store.signal()
	return nil
}

// put keeps an object, nil for nothing. The lock is held.
func (k *kind[T]) put(key string, now *T) {
	before := k.all[key]
	if reflect.DeepEqual(before, now) {
		return
	}
	if k.all[key] = now; now == nil {
		delete(k.all, key)
	}
	k.changed(before, now)
}

// Replace implements cache.ReflectorStore.
func (k *kind[T]) Replace(all []any, _ string) error {
	kept := map[string]*T{}
	for _, o := range all {
		key, err := keyOf(o)
		if err != nil {
			return err
		}
		kept[key] = k.keep(o)
	}
	k.store.mu.Lock()
	defer k.store.mu.Unlock()
	for key := range k.all {
		k.put(key, kept[key])
	}
	for key, now := range kept {
		k.put(key, now)
	}
	k.store.signal()
	return nil
}

// Resync implements cache.ReflectorStore.
func (k *kind[T]) Resync() error { return nil }

// Transformer implements cache.TransformingStore.
func (k *kind[T]) Transformer() cache.TransformFunc {
	if _, slices := any(k).(*kind[packed]); slices {
		return pack
	}
	return nil
}
