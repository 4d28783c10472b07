package web

import (
	"context"
	"sync"
	"time"

	"github.com/tranche-dev/tranche/pkg/why"
)

// An answer is kept for answerAge: it takes the scheduler's allocator, and a list of everything.
const answerAge = 10 * time.Second

// answers are explanations. One is made at a time.
type answers struct {
	mu  sync.Mutex
	all map[string]*answer
}

type answer struct {
	at time.Time
	e  *why.Explanation
}

// explain explains a pod, or takes the explanation that was made for the same rights a moment ago.
func (s *Server) explain(ctx context.Context, c scope, namespace, pod string) (*why.Explanation, error) {
	if s.Why == nil {
		return nil, errNotThere
	}
	key := c.Key + "/" + namespace + "/" + pod
	s.answers.mu.Lock()
	defer s.answers.mu.Unlock()
	if known := s.answers.all[key]; known != nil && c.now.Sub(known.at) < answerAge {
		return known.e, nil
	}
	for old, a := range s.answers.all {
		if c.now.Sub(a.at) >= answerAge {
			delete(s.answers.all, old)
		}
	}
	e, err := s.Why(ctx, c.Viewer, namespace, pod)
	if err != nil {
		return nil, err
	}
	if e == nil {
		return nil, errNotThere
	}
	s.answers.all[key] = &answer{c.now, e}
	return e, nil
}

// likeliest are the nodes that are closest to serving the pod.
func likeliest(nodes []why.Node) []why.Node {
	var out []why.Node
	for _, v := range []why.Verdict{why.Fits, why.Unclear, why.Together, why.Full, why.Never, why.Tainted, why.Unusable, why.Excluded, why.Lacking} {
		for _, n := range nodes {
			if n.Verdict == v && len(out) < mostVerdicts {
				out = append(out, n)
			}
		}
	}
	return out
}
