package controller

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clocktesting "k8s.io/utils/clock/testing"
)

// A leader whose clock is ahead must not take a drain for one that is over.
func TestTheTimeIsThatOfTheAPIServer(t *testing.T) {
	server := time.Date(2026, 11, 22, 8, 0, 0, 0, time.UTC)
	local := clocktesting.NewFakeClock(server.Add(time.Hour))
	c := &ServerClock{Local: local}
	assert.Equal(t, local.Now(), c.Now(), "nothing was heard yet")
	date := server
	ask := func(lasts time.Duration) {
		answer := c.Wrap(transport(func(*http.Request) *http.Response {
			local.Step(lasts)
			if date.IsZero() {
				return &http.Response{}
			}
			return &http.Response{Header: http.Header{"Date": {date.Format(http.TimeFormat)}}}
		}))
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://localhost", nil)
		require.NoError(t, err)
		got, err := answer.RoundTrip(r)
		require.NoError(t, err)
		assert.NotNil(t, got)
	}
	ask(time.Minute)
	assert.Equal(t, local.Now(), c.Now(), "an answer that took so long tells little")
	date = server.Add(time.Minute)
	ask(0)
	assert.WithinDuration(t, date, c.Now(), time.Second)
	local.Step(time.Second)
	date = date.Add(2 * time.Second)
	before := c.Now()
	ask(0)
	assert.Equal(t, before, c.Now(), "it does not jump with every answer")
	assert.Equal(t, time.Minute, c.Since(before.Add(-time.Minute)))
	date = time.Time{}
	ask(0)
	assert.Equal(t, before, c.Now(), "an answer without a time")
	date = local.Now()
	ask(0)
	assert.Equal(t, local.Now(), c.Now())
}

type transport func(*http.Request) *http.Response

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r), nil }
