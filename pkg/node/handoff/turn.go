package handoff

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"
)

// turnInterval is how often a plugin looks whether the other one has ended.
const turnInterval = 200 * time.Millisecond

// TakeTurn makes sure that one plugin at a time publishes the GPUs of the node,
// changes them for a profile, and reports in the GPUNode. During a rolling update, two
// that do not publish the same would undo each other's writes without end, and one
// would put back what the other is about to change. The newer one waits until the
// older one has ended; what that has published stays good meanwhile. mine is called
// once, at once if there is no other. release ends the turn, after the last write and
// the last change.
func TakeTurn(ctx context.Context, dir string, mine func()) (release func(), err error) {
	path := filepath.Join(dir, "publisher.lock")
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the lock of the one that publishes: %w", err)
	}
	try := func() (bool, error) {
		err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if errors.Is(err, unix.EWOULDBLOCK) || errors.Is(err, unix.EINTR) {
			return false, nil
		}
		return err == nil, err
	}
	got, err := try()
	if err != nil {
		file.Close()
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	release = func() {
		cancel()
		<-ended
		file.Close()
	}
	if got {
		close(ended)
		mine()
		return release, nil
	}
	klog.FromContext(ctx).Info("Another plugin publishes the GPUs of this node; this one takes over when it has ended")
	go func() {
		defer close(ended)
		for {
			select {
			case <-time.After(turnInterval):
			case <-ctx.Done():
				return
			}
			switch got, err := try(); {
			case err != nil:
				klog.FromContext(ctx).Error(err, "Cannot see whether another plugin still publishes the GPUs of this node")
			case got:
				mine()
				return
			}
		}
	}()
	return release, nil
}
