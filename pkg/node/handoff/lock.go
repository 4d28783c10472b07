package handoff

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
)

// lockFile is the lock's name in the plugin's folder.
const lockFile = "plugin.lock"

// lockPatience is how long a plugin waits for another one that is just taking
// the lock.
const lockPatience = time.Second

// Lock makes sure that only plugins of one installation work on the node's
// folder. During a rolling update the old and the new one do so together, each
// with a shared lock; a second installation would publish and cut the same
// GPUs again. The kernel lets go of a lock when the process ends, however it
// ends.
func Lock(ctx context.Context, dir, installation string) (unlock func(), err error) {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return nil, fmt.Errorf("create the plugin's folder: %w", err)
	}
	path := filepath.Join(dir, lockFile)
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the plugin's lock: %w", err)
	}
	var refused error
	err = wait.PollUntilContextTimeout(ctx, 10*time.Millisecond, lockPatience, true, func(context.Context) (bool, error) {
		refused, err = tryLock(file, installation)
		return refused == nil, err
	})
	if err != nil {
		file.Close()
		return nil, errors.Join(refused, ignoreTimeout(err, refused))
	}
	if err := stillThere(file); err != nil {
		file.Close()
		return nil, err
	}
	return func() { file.Close() }, nil
}

// LockAlone locks the node's folder for a plugin that is the last on the node, to remove
// the folder. unlock is nil if another plugin works there, or if there is no folder.
// A plugin that starts meanwhile waits, and then sees that its folder is gone.
func LockAlone(ctx context.Context, dir string) (unlock func(), err error) {
	file, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_RDWR, 0o600)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("open the plugin's lock: %w", err)
	}
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		file.Close()
		klog.FromContext(ctx).Info("Another plugin works on this node, so nothing is removed")
		return nil, nil //nolint:nilerr // said
	}
	return func() { file.Close() }, nil
}

// stillThere tells whether the lock is the one that others see: a plugin that
// has ended for good takes the whole folder with it.
func stillThere(file *os.File) error {
	ours, err := file.Stat()
	if err != nil {
		return fmt.Errorf("look at %s: %w", file.Name(), err)
	}
	if now, err := os.Stat(file.Name()); err != nil || !os.SameFile(ours, now) {
		return fmt.Errorf("%s was removed by a plugin that was just uninstalled; the next start makes another one", file.Name())
	}
	return nil
}

// ignoreTimeout drops the end of the waiting where the reason for it is known.
func ignoreTimeout(err, reason error) error {
	if reason != nil && wait.Interrupted(err) {
		return nil
	}
	return err
}

// tryLock takes a shared lock. The first plugin writes down which installation
// it belongs to, the others must belong to the same; the last one is named as the holder. refused says why it did not
// work now; err ends the trying.
func tryLock(file *os.File, installation string) (refused, err error) {
	fd := int(file.Fd())
	first := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB)
	switch {
	case first == nil:
		if err := writeHolder(file, installation); err != nil {
			return nil, err
		}
	case !errors.Is(first, unix.EWOULDBLOCK):
		return nil, fmt.Errorf("lock %s: %w", file.Name(), first)
	}
	holder, err := os.ReadFile(file.Name())
	if err != nil {
		return nil, fmt.Errorf("read who holds %s: %w", file.Name(), err)
	}
	theirs, process, _ := strings.Cut(strings.TrimRight(string(holder), "\n"), "\n")
	if theirs != installation {
		return fmt.Errorf("another Tranche plugin (installation %s, %s) runs on this node and holds %s: end it first", theirs, process, file.Name()), nil
	}
	if err := unix.Flock(fd, unix.LOCK_SH|unix.LOCK_NB); err != nil {
		return fmt.Errorf("lock %s, which %s holds: %w", file.Name(), process, err), nil
	}
	if first != nil {
		// In a rolling update the process that was named so far is about to end.
		return nil, writeHolder(file, installation)
	}
	return nil, nil
}

// writeHolder writes the installation, which others compare, and the process,
// for people who find the lock held.
func writeHolder(file *os.File, installation string) error {
	host, _ := os.Hostname()
	text := fmt.Appendf(nil, "%s\npid %d of %s\n", installation, os.Getpid(), host)
	// Written first: who reads in between finds the installation.
	if _, err := file.WriteAt(text, 0); err != nil {
		return fmt.Errorf("write who holds %s: %w", file.Name(), err)
	}
	if err := file.Truncate(int64(len(text))); err != nil {
		return fmt.Errorf("write who holds %s: %w", file.Name(), err)
	}
	return nil
}
