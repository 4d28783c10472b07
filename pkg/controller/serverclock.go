package controller

import (
	"net/http"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// ServerClock follows the clock of the API server. A deadline that one controller writes may be
// checked by another, on a machine whose clock is ahead: by its own clock it would delete pods
// too early. It is safe for concurrent use.
type ServerClock struct {
	// Local is the clock to correct, nil: the clock of the machine.
	Local clock.PassiveClock

	// mu guards offset.
	mu sync.Mutex
	// offset is how far the server is ahead.
	offset time.Duration
}

// tolerated is the difference between the clocks that is not corrected. The Date header has a
// resolution of a second, and responses take time.
const tolerated = 2 * time.Second

var _ clock.PassiveClock = (*ServerClock)(nil)

func (c *ServerClock) local() clock.PassiveClock {
	if c.Local == nil {
		return clock.RealClock{}
	}
	return c.Local
}

// Now implements clock.PassiveClock.
func (c *ServerClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.local().Now().Add(c.offset)
}

// Since implements clock.PassiveClock.
func (c *ServerClock) Since(at time.Time) time.Duration { return c.Now().Sub(at) }

// Wrap reads the server's time from the responses of a transport, for rest.Config.Wrap.
func (c *ServerClock) Wrap(next http.RoundTripper) http.RoundTripper {
	return &timedTransport{next: next, clock: c}
}

type timedTransport struct {
	next  http.RoundTripper
	clock *ServerClock
}

// RoundTrip implements http.RoundTripper.
func (t *timedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	asked := t.clock.local().Now()
	answer, err := t.next.RoundTrip(r)
	if err == nil {
		t.clock.heard(asked, answer.Header.Get("Date"))
	}
	return answer, err
}

// heard takes the Date of a response to a request that was sent at asked. Slow responses are
// ignored, because they are too inexact.
func (c *ServerClock) heard(asked time.Time, date string) {
	said, err := http.ParseTime(date)
	if err != nil {
		return
	}
	now := c.local().Now()
	if now.Sub(asked) > tolerated {
		return
	}
	// The server's clock was between said and a second later.
	offset := said.Add(500 * time.Millisecond).Sub(now)
	c.mu.Lock()
	defer c.mu.Unlock()
	if d := offset - c.offset; d > tolerated || d < -tolerated {
		c.offset = offset
	}
	if c.offset > -tolerated && c.offset < tolerated {
		c.offset = 0
	}
}
