package main

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"

	"github.com/tranche-dev/tranche/api/v1beta1"
)

// startPatienceOfNode is how long to wait for the start of a node.
const startPatienceOfNode = 2 * time.Minute

// start is the beginning of a node's switch, or a step of it.
type start struct {
	pool string
	at   time.Time
	// goesOn: it had begun before.
	goesOn bool
}

// starts are the switches that the plugins' watch has seen begin and go on.
type starts struct {
	// mu protects what follows.
	mu  sync.Mutex
	all []start
	// seen are the switches of the nodes, states the nodes' states.
	seen   map[string]string
	states map[string]v1beta1.State
}

// watchStarts takes in what happens from now on.
func (p *plugins) watchStarts() (*starts, error) {
	s := &starts{seen: map[string]string{}, states: map[string]v1beta1.State{}}
	pools := map[string]string{}
	for i, name := range p.names {
		pools[name] = poolOf(i, p.plans)
	}
	take := func(o any) {
		if n, ok := o.(*v1beta1.GPUNode); ok {
			s.take(n.Name, pools[n.Name], &n.Status, time.Now())
		}
	}
	_, err := p.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: take, UpdateFunc: func(_, o any) { take(o) }})
	return s, err
}

func (s *starts) take(node, pool string, status *v1beta1.GPUNodeStatus, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	begins := status.Switch != nil && s.seen[node] != status.Switch.ID
	if begins {
		s.seen[node] = status.Switch.ID
	}
	if before, known := s.states[node]; begins || known && before != status.State {
		s.all = append(s.all, start{pool: pool, at: now, goesOn: !begins})
	}
	s.states[node] = status.State
}

// since are those after a time.
func (s *starts) since(at time.Time) (out []start) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, one := range s.all {
		if one.at.After(at) {
			out = append(out, one)
		}
	}
	return out
}

// await waits for the first start of a kind, and says when it was.
func (s *starts) await(ctx context.Context, ok func(start) bool) (at time.Time, err error) {
	err = wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, startPatienceOfNode, true, func(context.Context) (bool, error) {
		for _, one := range s.since(time.Time{}) {
			if ok(one) {
				at = one.at
				return true, nil
			}
		}
		return false, nil
	})
	return at, err
}
