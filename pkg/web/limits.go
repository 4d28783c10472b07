package web

import (
	"context"
	"net/http"
	"runtime"
	"sync"
	"time"
)

const (
	// mostStreams is how many pages are kept up to date at a time.
	mostStreams = 256
	// drawTime is how long a request waits until few enough pages are drawn.
	drawTime = 10 * time.Second
)

var errBusy = &RefusedError{Status: http.StatusServiceUnavailable, Title: "Too many pages are being drawn", Text: "Try again in a moment."}

// newDrawing is for as many pages at once as there are processors: more would only take memory.
func newDrawing() chan struct{} { return make(chan struct{}, max(2, runtime.GOMAXPROCS(0))) }

// drawing waits until few enough pages are drawn. Who draws does not wait for anybody, and the
// browser gets the page afterwards.
func (s *Server) drawing(ctx context.Context) (done func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, drawTime)
	defer cancel()
	select {
	case s.draws <- struct{}{}:
		return func() { <-s.draws }, nil
	case <-ctx.Done():
		return nil, errBusy
	}
}

// Allowance is how much each of many may have under way at once.
type Allowance struct {
	most int
	// mu protects of.
	mu sync.Mutex
	of map[string]int
}

// NewAllowance returns an allowance of which nothing is in use.
func NewAllowance(most int) *Allowance { return &Allowance{most: most, of: map[string]int{}} }

// Begin reports whether who may have one more, which lasts until end is called.
func (a *Allowance) Begin(who string) (end func(), ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.of[who] >= a.most {
		return nil, false
	}
	a.of[who]++
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.of[who]--; a.of[who] == 0 {
			delete(a.of, who)
		}
	}, true
}
