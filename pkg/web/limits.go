package web

import (
	"context"
	"net/http"
	"runtime"
	"sync"
	"time"
)

const (
	// maxStreams is how many pages are kept up to date at a time.
	maxStreams = 256
	// drawTimeout is how long a request waits until few enough pages are drawn.
	drawTimeout = 10 * time.Second
)

var errBusy = &RefusedError{Status: http.StatusServiceUnavailable, Title: "Too many pages are being drawn", Text: "Try again in a moment."}

// newDrawing is for as many pages at once as there are processors: more would only take memory.
func newDrawing() chan struct{} { return make(chan struct{}, max(2, runtime.GOMAXPROCS(0))) }

// drawing waits until few enough pages are drawn. Who draws does not wait for anybody, and the
// browser gets the page afterwards.
func (s *Server) drawing(ctx context.Context) (done func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, drawTimeout)
	defer cancel()
	select {
	case s.draws <- struct{}{}:
		return func() { <-s.draws }, nil
	case <-ctx.Done():
		return nil, errBusy
	}
}

// Limiter limits how much each of many has under way at once.
type Limiter struct {
	limit int
	// mu protects of.
	mu sync.Mutex
	of map[string]int
}

// NewLimiter returns a limiter of which nothing is in use.
func NewLimiter(limit int) *Limiter { return &Limiter{limit: limit, of: map[string]int{}} }

// Acquire reports whether who may have one more, which lasts until release is called.
func (l *Limiter) Acquire(who string) (release func(), ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.of[who] >= l.limit {
		return nil, false
	}
	l.of[who]++
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.of[who]--; l.of[who] == 0 {
			delete(l.of, who)
		}
	}, true
}
