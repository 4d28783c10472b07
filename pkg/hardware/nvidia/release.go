package nvidia

import (
	"context"
	"fmt"
)

// Release ends the use of NVML for good: the session is closed and the library is
// unloaded, so that the kernel module can be taken out. It waits for the calls that are
// under way, and for WatchHealth to end, which the caller has asked for. A call that
// hangs fails it, and NVML stays open: a library must not be unloaded while a call is in
// it. Afterwards every call of the Driver fails; another Driver uses what is installed
// next.
func (d *Driver) Release(ctx context.Context) error {
	s := d.session
	if err := s.resets.Acquire(ctx, 1); err != nil {
		return fmt.Errorf("waiting for the reset of a GPU: %w", err)
	}
	if _, err := s.keepOut(ctx); err != nil {
		s.resets.Release(1)
		return err
	}
	if err := d.alone(ctx, s.end); err != nil {
		return fmt.Errorf("close NVML: %w", err)
	}
	s.released.Store(true)
	return nil
}
