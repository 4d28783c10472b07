package live

import "sync"

// listeners are told of changes. The zero value has none.
type listeners struct {
	mu  sync.Mutex // protects all
	all map[chan struct{}]string
}

// subscribe returns a channel that gets a value after each change of something. Who is slow misses
// some. The caller ends the subscription.
func (l *listeners) subscribe(to string) (changes <-chan struct{}, end func()) {
	c := make(chan struct{}, 1)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.all == nil {
		l.all = map[chan struct{}]string{}
	}
	l.all[c] = to
	return c, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.all, c)
	}
}

// notify tells those who listen to something.
func (l *listeners) notify(of string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c, to := range l.all {
		if to != of {
			continue
		}
		select {
		case c <- struct{}{}:
		default:
		}
	}
}
