package kubelet

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/gofrs/flock"
	"k8s.io/klog/v2"
)

// turnInterval is how often a plugin checks whether the other one has ended.
const turnInterval = 200 * time.Millisecond

// TakeTurn makes sure that one plugin at a time publishes the GPUs of the node, changes them for
// a profile, and reports in the GPUNode. Otherwise two plugins would overwrite each other's
// ResourceSlices during a rolling update, and one would restore what the other is changing. The
// newer plugin waits until the older one has ended. mine is called once, when the turn begins:
// before TakeTurn returns, if there is no other plugin. release ends the turn. The caller must
// not write or change anything afterwards.
func TakeTurn(ctx context.Context, dir string, mine func()) (release func(), err error) {
	lock := flock.New(filepath.Join(dir, "publisher.lock"))
	got, err := lock.TryLock()
	if err != nil {
		return nil, fmt.Errorf("take the lock of the plugin that publishes: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	release = func() {
		cancel()
		<-ended
		lock.Close()
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
			switch got, err := lock.TryLock(); {
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
