package web

import (
	"context"
	"sync"
)

// KeyedLock lets one request at a time find out the same thing, so that the others find it known. The
// zero value is ready.
type KeyedLock[K comparable] struct {
	// mu protects what follows.
	mu sync.Mutex
	of map[K]*keyLock
}

// keyLock has a value in held while somebody holds it. users hold it or wait for it.
type keyLock struct {
	held  chan struct{}
	users int
}

// Lock waits for the lock of a key, or until ctx ends. Who gets it calls unlock.
func (l *KeyedLock[K]) Lock(ctx context.Context, key K) (unlock func(), err error) {
	l.mu.Lock()
	if l.of == nil {
		l.of = map[K]*keyLock{}
	}
	of := l.of[key]
	if of == nil {
		of = &keyLock{held: make(chan struct{}, 1)}
		l.of[key] = of
	}
	of.users++
	l.mu.Unlock()
	leave := func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if of.users--; of.users == 0 {
			delete(l.of, key)
		}
	}
	select {
	case of.held <- struct{}{}:
		return func() { <-of.held; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, ctx.Err()
	}
}
