package kubelet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/gofrs/flock"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
)

// lockFile is the lock's name in the plugin's folder.
const lockFile = "plugin.lock"

// lockPatience is how long a plugin waits while another one takes the lock.
const lockPatience = time.Second

// Lock makes sure that only plugins of one installation use the plugin's folder. During a rolling
// update, the old and the new one each have a shared lock. A second installation would publish
// and partition the same GPUs. The kernel releases the lock when the process ends.
func Lock(ctx context.Context, dir, installation string) (unlock func(), err error) {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return nil, fmt.Errorf("create the folder of the plugin: %w", err)
	}
	lock := flock.New(filepath.Join(dir, lockFile))
	var refused error
	err = wait.PollUntilContextTimeout(ctx, 10*time.Millisecond, lockPatience, true, func(context.Context) (bool, error) {
		refused, err = tryLock(lock, installation)
		return refused == nil, err
	})
	if err != nil {
		lock.Close()
		return nil, cmp.Or(refused, err) // what was refused last says more than that time is up
	}
	if err := stillThere(lock); err != nil {
		lock.Close()
		return nil, err
	}
	return func() { lock.Close() }, nil
}

// LockAlone locks the plugin's folder for the last plugin on the node, which removes the folder.
// unlock is nil if another plugin uses the folder, or if it does not exist. A plugin that starts
// meanwhile waits, and then finds that its folder is gone.
func LockAlone(ctx context.Context, dir string) (unlock func(), err error) {
	lock := flock.New(filepath.Join(dir, lockFile), flock.SetFlag(os.O_RDONLY))
	switch alone, err := lock.TryLock(); {
	case errors.Is(err, os.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("take the plugin's lock: %w", err)
	case !alone:
		klog.FromContext(ctx).Info("Another plugin works on this node, so nothing is removed")
		return nil, nil
	}
	return func() { lock.Close() }, nil
}

// stillThere fails if the locked file was removed: the last plugin that ends during an
// uninstallation removes the folder.
func stillThere(lock *flock.Flock) error {
	ours, err := lock.Stat()
	if err != nil {
		return fmt.Errorf("look at %s: %w", lock, err)
	}
	if now, err := os.Stat(lock.Path()); err != nil || !os.SameFile(ours, now) {
		return fmt.Errorf("%s was removed by a plugin that was just uninstalled; the next start makes another one", lock)
	}
	return nil
}

// tryLock takes a shared lock. The first plugin writes its installation, and the others must
// belong to the same. The file names the process that took the lock last. refused is a reason to
// retry, err is not.
func tryLock(lock *flock.Flock, installation string) (refused, err error) {
	first, err := lock.TryLock()
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", lock, err)
	}
	if first {
		if err := writeHolder(lock.Path(), installation); err != nil {
			return nil, err
		}
	}
	holder, err := os.ReadFile(lock.Path())
	if err != nil {
		return nil, fmt.Errorf("read who holds %s: %w", lock, err)
	}
	theirs, process, _ := strings.Cut(strings.TrimRight(string(holder), "\n"), "\n")
	if theirs != installation {
		return fmt.Errorf("another Tranche plugin (installation %s, %s) runs on this node and holds %s: end it first", theirs, process, lock), nil
	}
	switch shared, err := lock.TryRLock(); {
	case err != nil:
		return nil, fmt.Errorf("lock %s: %w", lock, err)
	case !shared:
		lock.Close() // the kernel gave up an exclusive lock before it refused the shared one
		return fmt.Errorf("%s holds %s", process, lock), nil
	case first:
		return nil, nil
	}
	// In a rolling update, the process that was named so far is about to end.
	return nil, writeHolder(lock.Path(), installation)
}

// writeHolder writes the installation, which other plugins compare, and the process, for
// messages.
func writeHolder(path, installation string) error {
	host, _ := os.Hostname()
	text := fmt.Appendf(nil, "%s\npid %d of %s\n", installation, os.Getpid(), host)
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("write who holds %s: %w", path, err)
	}
	defer file.Close()
	// Written before it is truncated, so that other plugins always find the installation.
	if _, err := file.WriteAt(text, 0); err != nil {
		return fmt.Errorf("write who holds %s: %w", path, err)
	}
	if err := file.Truncate(int64(len(text))); err != nil {
		return fmt.Errorf("write who holds %s: %w", path, err)
	}
	return nil
}
