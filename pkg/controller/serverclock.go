package controller

import (
	"net/http"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// ServerClock is the time as the API server has it. Deadlines are written down by one
// controller and judged by the next, maybe on a machine whose clock is ahead: by its own
// clock it would delete pods at once whose drain has just begun. It is safe for
// concurrent use.
type ServerClock struct {
	// Local is the clock that is corrected, nil: the machine's.
	Local clock.PassiveClock

	// mu guards offset.
	mu sync.Mutex
	// offset is how far the server is ahead.
	offset time.Duration
}

// tolerated is by how much the clocks may differ before that is corrected. Answers tell
// the time in seconds, and are under way for a while.
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

// Wrap reads the server's time from the answers of a transport. It fits
// rest.Config.Wrap.
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

// heard takes a time that the server told between a question and now. An answer that was
// long under way tells little.
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
