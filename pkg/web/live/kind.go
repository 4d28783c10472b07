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
	// keep makes of an object what is kept of it; false: nothing.
	keep func(o any) (T, bool)
	// changed is called with what was kept before and is kept now, with the lock held.
	changed func(before, now *T)
	all     map[string]T
}

func newKind[T any](s *Store, keep func(any) (T, bool), changed func(before, now *T)) *kind[T] {
	return &kind[T]{store: s, keep: keep, changed: changed, all: map[string]T{}}
}

// objects is for kinds that are kept as they are, or trimmed.
func objects[T any](trim func(*T) *T) func(any) (*T, bool) {
	return func(o any) (*T, bool) {
		object, ok := o.(*T)
		if ok && trim != nil {
			object = trim(object)
		}
		return object, ok && object != nil
	}
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
func (k *kind[T]) Update(o any) error {
	key, err := keyOf(o)
	if err != nil {
		return err
	}
	now, ok := k.keep(o)
	k.store.mu.Lock()
	defer k.store.mu.Unlock()
	k.set(key, now, ok)
	k.store.stir()
	return nil
}

// set keeps an object or forgets it. The lock is held.
func (k *kind[T]) set(key string, now T, ok bool) {
	before, was := k.all[key]
	switch {
	case ok && was && reflect.DeepEqual(before, now):
	case ok && was:
		k.all[key] = now
		k.changed(&before, &now)
	case ok:
		k.all[key] = now
		k.changed(nil, &now)
	case was:
		delete(k.all, key)
		k.changed(&before, nil)
	}
}

// Delete implements cache.ReflectorStore.
func (k *kind[T]) Delete(o any) error {
	key, err := keyOf(o)
	if err != nil {
		return err
	}
	k.store.mu.Lock()
	defer k.store.mu.Unlock()
	var none T
	k.set(key, none, false)
	k.store.stir()
	return nil
}

// Replace implements cache.ReflectorStore.
func (k *kind[T]) Replace(all []any, _ string) error {
	kept, ok := map[string]T{}, map[string]bool{}
	for _, o := range all {
		key, err := keyOf(o)
		if err != nil {
			return err
		}
		kept[key], ok[key] = k.keep(o)
	}
	k.store.mu.Lock()
	defer k.store.mu.Unlock()
	var none T
	for key := range k.all {
		if !ok[key] {
			k.set(key, none, false)
		}
	}
	for key, now := range kept {
		k.set(key, now, ok[key])
	}
	k.store.stir()
	return nil
}

// Resync implements cache.ReflectorStore.
func (k *kind[T]) Resync() error { return nil }

// Transformer implements cache.TransformingStore.
func (k *kind[T]) Transformer() cache.TransformFunc {
	if _, slices := any(k).(*kind[*packed]); slices {
		return pack
	}
	return nil
}
