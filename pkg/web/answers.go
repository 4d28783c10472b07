package web

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/util/cache"

	"github.com/tranche-dev/tranche/pkg/cluster"
	"github.com/tranche-dev/tranche/pkg/text"
	"github.com/tranche-dev/tranche/pkg/why"
)

const (
	// An answer is kept for answerAge: it takes the scheduler's allocator, and a list of everything.
	answerAge = 10 * time.Second
	// maxAnswers is how many are kept.
	maxAnswers = 256
)

// answers are explanations of pods, and what pods request of nodes. One is made at a time for each key:
// of a pod, for viewers with the same rights.
type answers struct {
	making KeyedLock[string]
	kept   *cache.LRUExpireCache
}

// cacheClock is the clock of a cache.
type cacheClock func() time.Time

// Now implements the cache's Clock.
func (c cacheClock) Now() time.Time { return c() }

func newAnswers(now func() time.Time) *answers {
	return &answers{kept: cache.NewLRUExpireCacheWithClock(maxAnswers, cacheClock(now))}
}

// explain explains a pod, or takes the explanation that was made for the same rights a moment ago.
func (s *Server) explain(ctx context.Context, c scope, namespace, pod string) (*why.Explanation, error) {
	if s.Why == nil {
		return nil, errNotThere
	}
	return answer(ctx, s.answers, c.Key+"/"+namespace+"/"+pod, func() (*why.Explanation, error) {
		e, err := s.Why(ctx, c.Viewer, namespace, pod)
		if err == nil && e == nil {
			err = errNotThere
		}
		return e, err
	})
}

// requested is what pods request of a node, and what of it could not be read.
type requested struct {
	amounts cluster.Requested
	unread  []text.Unread
}

// requestsTimeout is how long a page of a node waits for its pods.
const requestsTimeout = 3 * time.Second

// requests returns what pods request of a node, or requested a moment ago. It is nothing if the viewer
// may not see the node.
func (s *Server) requests(ctx context.Context, c scope, node string) (requested, error) {
	if s.Requested == nil || c.NoNodes || c.Find(node) == nil {
		return requested{}, nil
	}
	return answer(ctx, s.answers, "node/"+node, func() (r requested, _ error) {
		ctx, cancel := context.WithTimeout(ctx, requestsTimeout)
		defer cancel()
		var unread text.Unread
		if r.amounts, unread = s.Requested(ctx, node); unread.Message != "" {
			r.unread = []text.Unread{unread}
		}
		return r, nil
	})
}

// answer returns what get returns, or has returned for the same key a moment ago.
func answer[T any](ctx context.Context, a *answers, key string, get func() (T, error)) (found T, err error) {
	done, err := a.making.Lock(ctx, key)
	if err != nil {
		return found, err
	}
	defer done()
	if known, ok := a.kept.Get(key); ok {
		return known.(T), nil //nolint:forcetypeassert // a key has one type
	}
	if found, err = get(); err == nil {
		a.kept.Add(key, found, answerAge)
	}
	return found, err
}
