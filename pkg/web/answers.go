package web

import (
	"context"
	"fmt"
	"net/http"
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

// answered is the data of the template why.
type answered struct {
	E     *why.Explanation
	Tone  string
	Nodes []verdict
	Rest  string
}

type verdict struct {
	N    why.Node
	Tone string
	Open bool
}

// mostVerdicts is how many nodes are explained.
const mostVerdicts = 12

func (s *Server) why(ctx context.Context, c scope, namespace, pod string) (*page, error) {
	if !c.Sees(namespace) {
		return nil, &Refusal{Status: http.StatusForbidden, Title: "You may not see this pod", Text: fmt.Sprintf("You are not allowed to list pods and resourceclaims in the namespace %s.", namespace)}
	}
	e, err := s.explain(ctx, c, namespace, pod)
	if err != nil {
		return nil, err
	}
	data := answered{E: e, Tone: stateTones[e.State]}
	for _, n := range likeliest(e.Nodes) {
		data.Nodes = append(data.Nodes, verdict{N: n, Tone: verdictTones[n.Verdict], Open: len(data.Nodes) < 3})
	}
	if more := len(e.Nodes) - len(data.Nodes); more > 0 {
		data.Rest = fmt.Sprintf("And %d more nodes. All of them: kubectl tranche why %s -n %s -o wide", more, pod, namespace)
	}
	return &page{
		title: pod, nav: "Pending", crumbs: []link{{"Pending", "/pending"}, {Name: namespace + "/" + pod}},
		blocks: []block{{template: "why", data: data}},
	}, nil
}

// explain explains a pod, or takes the explanation that was made for the same rights a moment ago.
func (s *Server) explain(ctx context.Context, c scope, namespace, pod string) (*why.Explanation, error) {
	if s.Why == nil {
		return nil, notThere
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

var stateTones = map[why.State]string{
	why.Running: "ok", why.Finished: "ok", why.RoomNow: "ok", why.Starting: "ok",
	why.Invalid: "bad", why.ClaimMissing: "bad", why.Absent: "bad",
	why.NoRoom: "warn", why.Unknown: "warn", why.Gated: "warn", why.Terminating: "warn",
}

var verdictTones = map[why.Verdict]string{
	why.Fits: "ok", why.Full: "warn", why.Together: "warn", why.Tainted: "warn", why.Unclear: "warn", why.Unusable: "bad", why.Never: "bad",
}
