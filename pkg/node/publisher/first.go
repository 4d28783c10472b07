package publisher

import (
	"context"
	"sync"

	"k8s.io/dynamic-resource-allocation/resourceslice"
)

type sendFunc = func(context.Context, resourceslice.DriverResources) error

// first makes the first call of send, which waits for the API server, in the background: the
// kubelet and a stop of the plugin must not wait for it.
type first struct {
	send sendFunc
	// failed handles errors for which no caller waits.
	failed func(context.Context, error)

	// mu protects the fields below, and keeps calls of send in order.
	mu sync.Mutex
	// begun is set from the beginning of the first call, unless it fails; succeeded from its end.
	begun, succeeded bool
	// latest is what was last to be sent before the first call has succeeded.
	latest *resourceslice.DriverResources
}

// Send is send, which waits for nothing.
func (f *first) Send(ctx context.Context, resources resourceslice.DriverResources) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.succeeded {
		return f.send(ctx, resources)
	}
	f.latest = &resources
	if !f.begun {
		f.begun = true
		go f.begin(context.WithoutCancel(ctx), f.latest)
	}
	return nil
}

// begin makes the first call, and another one if the resources have changed meanwhile. If the first
// call fails, the next Send repeats it.
func (f *first) begin(ctx context.Context, resources *resourceslice.DriverResources) {
	err := f.send(ctx, *resources)
	if err == nil {
		err = f.finish(ctx, resources)
	} else {
		f.mu.Lock()
		f.begun = false
		f.mu.Unlock()
	}
	if err != nil {
		f.failed(ctx, err)
	}
}

// finish sends what has changed during the first call.
func (f *first) finish(ctx context.Context, sent *resourceslice.DriverResources) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.succeeded = true
	if f.latest == sent {
		return nil
	}
	return f.send(ctx, *f.latest)
}
