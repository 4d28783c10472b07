package queue

import (
	"context"
	"sync"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// Queue is the queue of a controller. It has none until the controller starts.
type Queue struct {
	// mu guards items.
	mu    sync.Mutex
	items workqueue.TypedRateLimitingInterface[reconcile.Request]
}

// Source is what the controller watches.
func (q *Queue) Source() source.Source {
	return source.Func(func(_ context.Context, items workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.items = items
		return nil
	})
}

// Add adds a request. Before the controller starts, that is not needed: it begins with everything.
func (q *Queue) Add(o priorityqueue.AddOpts, request reconcile.Request) {
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
