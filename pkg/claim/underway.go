package claim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// errReleasedMeanwhile ends a Prepare whose claim is released.
var errReleasedMeanwhile = errors.New("the claim was released while it was being prepared")

// underWay has the calls of Prepare that are in progress. A release cancels them first: the
// kubelet may have timed out, and the call would prepare devices that nobody releases.
type underWay struct {
	// mu protects calls.
	mu    sync.Mutex
	calls map[types.UID][]*call
}

// call is one Prepare.
type call struct {
	cancel context.CancelCauseFunc
	// over is closed when the call has returned.
	over chan struct{}
}

// begin adds a call. It fails if ctx has ended: the release may have been called before.
func (u *underWay) begin(ctx context.Context, claim types.UID) (_ context.Context, over func(), err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if ctx.Err() != nil {
		return nil, nil, context.Cause(ctx)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	c := &call{cancel: cancel, over: make(chan struct{})}
	if u.calls == nil {
		u.calls = map[types.UID][]*call{}
	}
	u.calls[claim] = append(u.calls[claim], c)
	return ctx, func() {
		cancel(nil)
		u.mu.Lock()
		defer u.mu.Unlock()
		if left := slices.DeleteFunc(u.calls[claim], func(other *call) bool { return other == c }); len(left) > 0 {
			u.calls[claim] = left
		} else {
			delete(u.calls, claim)
		}
		close(c.over)
	}, nil
}

// end cancels the calls for a claim, and waits until they have undone their steps.
func (u *underWay) end(ctx context.Context, claim types.UID) error {
	u.mu.Lock()
	calls := slices.Clone(u.calls[claim])
	u.mu.Unlock()
	for _, c := range calls {
		c.cancel(errReleasedMeanwhile)
	}
	for _, c := range calls {
		select {
		case <-c.over:
		case <-ctx.Done():
			return fmt.Errorf("wait until the Prepare in progress is cancelled: %w", context.Cause(ctx))
		}
	}
	return nil
}
