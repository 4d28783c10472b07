package web

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/util/cache"

	"github.com/tranche-dev/tranche/pkg/why"
)

const (
	// An answer is kept for answerAge: it takes the scheduler's allocator, and a list of everything.
	answerAge = 10 * time.Second
	// maxAnswers is how many are kept.
	maxAnswers = 256
)

// answers are explanations. One of a pod is made at a time for viewers with the same rights.
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
	key := c.Key + "/" + namespace + "/" + pod
	done, err := s.answers.making.Lock(ctx, key)
	if err != nil {
		return nil, err
	}
	defer done()
	if known, ok := s.answers.kept.Get(key); ok {
		return known.(*why.Explanation), nil //nolint:forcetypeassert // there are no others
	}
	e, err := s.Why(ctx, c.Viewer, namespace, pod)
	if err != nil {
		return nil, err
	}
	if e == nil {
		return nil, errNotThere
	}
	s.answers.kept.Add(key, e, answerAge)
	return e, nil
}
