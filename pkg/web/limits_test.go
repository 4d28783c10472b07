package web

import (
	"context"
	"net/http"
	"net/http/httptest"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/pkg/cluster/overview"
	"github.com/tranche-dev/tranche/pkg/why"
)

// stuck is a browser that receives nothing until end is closed.
type stuck struct {
	header http.Header
	begun  chan<- int
	end    <-chan struct{}
}

func (s *stuck) Header() http.Header { return s.header }
func (s *stuck) WriteHeader(int)     {}
func (s *stuck) Write(b []byte) (int, error) {
	s.begun <- len(b)
	<-s.end
	runtime.KeepAlive(b)
	return len(b), nil
}

// Browsers that receive nothing keep little memory, and others get their pages meanwhile.
func TestStuckBrowsersTakeLittle(t *testing.T) {
	f := newFixture(t, 300)
	page := f.get("/").Body.Len()
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	many := 100
	if testing.Short() {
		many = 30
	}
	before := heap()
	begun, end := make(chan int, many), make(chan struct{})
	var running sync.WaitGroup
	defer running.Wait()
	defer close(end)
	for range many {
		running.Go(func() {
			r := httptest.NewRequest(http.MethodGet, "/", nil)
			r.Header.Set("Accept-Encoding", "gzip")
			f.ServeHTTP(&stuck{header: http.Header{}, begun: begun, end: end}, r)
		})
		assert.Less(t, <-begun, page/4)
	}
	assert.Less(t, int64(heap())-int64(before), int64(many*page/2))
	assert.Equal(t, http.StatusOK, f.get("/").Code)
}

// A request waits for its turn to be drawn as long as it lasts.
func TestFewPagesAreDrawnAtOnce(t *testing.T) {
	f := newFixture(t, 1)
	for range cap(f.draws) {
		f.draws <- struct{}{}
	}
	ctx, gone := context.WithCancel(t.Context())
	gone()
	w := httptest.NewRecorder()
	f.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil))
	assert.Equal(t, http.StatusServiceUnavailable, w.Code)
	<-f.draws
	assert.Equal(t, http.StatusOK, f.get("/").Code)
}

// While one explanation is made, others are, and pages are drawn; who wants the same waits for it as
// long as its request lasts.
func TestExplanationsDoNotWaitForEachOther(t *testing.T) {
	asked, end := make(chan string, 10), make(chan struct{})
	f := newFixture(t, 2, func(o *Options) {
		o.Why = func(_ context.Context, _ overview.Viewer, namespace, pod string) (*why.Explanation, error) {
			asked <- pod
			if pod == "slow" {
				<-end
			}
			return &why.Explanation{Namespace: namespace, Pod: pod, Summary: pod}, nil
		}
	})
	slow := make(chan int, 2)
	ask := func() { slow <- f.get("/pending/vision/slow?answer").Code }
	go ask()
	require.Equal(t, "slow", <-asked)
	assert.Equal(t, "quick", f.get("/pending/vision/quick?answer").Body.String())
	assert.Equal(t, "quick", <-asked)
	ctx, gone := context.WithCancel(t.Context())
	gone()
	w := httptest.NewRecorder()
	f.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/pending/vision/slow?answer", nil))
	assert.Equal(t, http.StatusInternalServerError, w.Code)
	go ask()
	close(end)
	for range 2 {
		assert.Equal(t, http.StatusOK, <-slow)
	}
	assert.Empty(t, asked, "it is explained once")
}

func TestTurns(t *testing.T) {
	var locks KeyedLock[string]
	done, err := locks.Lock(t.Context(), "a")
	require.NoError(t, err)
	other, err := locks.Lock(t.Context(), "b")
	require.NoError(t, err)
	other()
	ctx, end := context.WithTimeout(t.Context(), time.Millisecond)
	defer end()
	_, err = locks.Lock(ctx, "a")
	require.ErrorIs(t, err, context.DeadlineExceeded)
	next := make(chan func())
	go func() {
		done, err := locks.Lock(t.Context(), "a")
		assert.NoError(t, err)
		next <- done
	}()
	done()
	(<-next)()
	assert.Empty(t, locks.of, "nothing is kept")
}

func TestAllowance(t *testing.T) {
	a := NewLimiter(2)
	first, ok := a.Acquire("ann")
	require.True(t, ok)
	_, ok = a.Acquire("ann")
	require.True(t, ok)
	_, ok = a.Acquire("ann")
	assert.False(t, ok)
	end, ok := a.Acquire("bob")
	require.True(t, ok)
	end()
	first()
	_, ok = a.Acquire("ann")
	assert.True(t, ok)
	assert.Equal(t, map[string]int{"ann": 2}, a.of)
}
