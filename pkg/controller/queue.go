package controller

import (
	"context"
	"sync"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// requests are requests of the program itself to a controller. There are none until it starts.
type requests struct {
	// mu guards items.
	mu    sync.Mutex
	items workqueue.TypedRateLimitingInterface[reconcile.Request]
}

// Source returns what the controller watches.
func (q *requests) Source() source.Source {
	return source.Func(func(_ context.Context, items workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.items = items
		return nil
	})
}

// Add adds a request. Before the controller starts, that is not needed: it begins with everything.
func (q *requests) Add(o priorityqueue.AddOpts, request reconcile.Request) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch items := q.items.(type) {
	case nil:
	case priorityqueue.PriorityQueue[reconcile.Request]:
		items.AddWithOpts(o, request)
	default:
		items.AddAfter(request, o.After)
	}
}
