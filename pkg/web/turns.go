package web

import (
	"context"
	"sync"
)

// Turns lets one request at a time find out the same thing, so that the others find it known. The
// zero value is ready.
type Turns[K comparable] struct {
	// mu protects what follows.
	mu sync.Mutex
	of map[K]*turn
}

// turn has a value while somebody has it.
type turn struct {
	taken   chan struct{}
	waiting int
}

// Take waits for the turn of a key, or until ctx ends. Who gets it calls done.
func (t *Turns[K]) Take(ctx context.Context, key K) (done func(), err error) {
	t.mu.Lock()
	if t.of == nil {
		t.of = map[K]*turn{}
	}
	of := t.of[key]
	if of == nil {
		of = &turn{taken: make(chan struct{}, 1)}
		t.of[key] = of
	}
	of.waiting++
	t.mu.Unlock()
	leave := func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if of.waiting--; of.waiting == 0 {
			delete(t.of, key)
		}
	}
	select {
	case of.taken <- struct{}{}:
		return func() { <-of.taken; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, ctx.Err()
	}
}
