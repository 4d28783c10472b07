package kubelet

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/gofrs/flock"
	"k8s.io/klog/v2"
)

// leadInterval is how often a plugin checks whether the other one has ended.
const leadInterval = 200 * time.Millisecond

// Lead makes sure that one plugin at a time publishes the GPUs of the node, changes them for
// a profile, and reports in the GPUNode. Otherwise two plugins would overwrite each other's
// ResourceSlices during a rolling update, and one would restore what the other is changing. The
// newer plugin leads when the older one has ended. lead is called once, when this plugin begins to
// lead: before Lead returns, if there is no other plugin. stepDown ends that. The caller must not
// write or change anything afterwards.
func Lead(ctx context.Context, dir string, lead func()) (stepDown func(), err error) {
	lock := flock.New(filepath.Join(dir, "publisher.lock"))
	got, err := lock.TryLock()
	if err != nil {
		return nil, fmt.Errorf("take the lock of the plugin that publishes: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	stepDown = func() {
		cancel()
		<-ended
		lock.Close()
	}
	if got {
		close(ended)
		lead()
		return stepDown, nil
	}
	klog.FromContext(ctx).Info("Another plugin publishes the GPUs of this node; this one takes over when it has ended")
	go func() {
		defer close(ended)
		for {
			select {
			case <-time.After(leadInterval):
			case <-ctx.Done():
				return
			}
			switch got, err := lock.TryLock(); {
			case err != nil:
				klog.FromContext(ctx).Error(err, "Cannot see whether another plugin still publishes the GPUs of this node")
			case got:
				lead()
				return
			}
		}
	}()
	return stepDown, nil
}
