package sleep

import (
	"context"
	"time"
)

// For waits for d, or until ctx ends: then it returns why.
func For(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
