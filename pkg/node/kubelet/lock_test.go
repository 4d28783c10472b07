package kubelet

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"testing"

	"github.com/go-logr/logr"
	"github.com/gofrs/flock"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/klog/v2"
)

func TestTwoPluginsOnOneNode(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "plugin")
	unlock, err := Lock(t.Context(), dir, "tranche-system/tranche")
	require.NoError(t, err)

	host, err := os.Hostname()
	require.NoError(t, err)
	_, err = Lock(t.Context(), dir, "other/tranche")
	require.EqualError(t, err, "another Tranche plugin (installation tranche-system/tranche, pid "+strconv.Itoa(os.Getpid())+" of "+host+
		") runs on this node and holds "+filepath.Join(dir, "plugin.lock")+": end it first")
	open, err := filepath.Glob("/proc/self/fd/*")
	require.NoError(t, err)
	open = slices.DeleteFunc(open, func(fd string) bool {
		name, _ := os.Readlink(fd)
		return name != filepath.Join(dir, "plugin.lock")
	})
	assert.Len(t, open, 1, "the refused one has closed the file")

	unlock()
	unlock, err = Lock(t.Context(), dir, "other/tranche")
	require.NoError(t, err)
	unlock()
}

// A rolling update starts the new plugin while the old one still works.
func TestTwoPluginsOfOneInstallation(t *testing.T) {
	dir := t.TempDir()
	older, err := Lock(t.Context(), dir, "tranche-system/tranche")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "plugin.lock"), []byte("tranche-system/tranche\npid 1 of a-pod-with-a-longer-name-than-the-newer-one\n"), 0o600))
	newer, err := Lock(t.Context(), dir, "tranche-system/tranche")
	require.NoError(t, err)
	older()
	host, err := os.Hostname()
	require.NoError(t, err)
	_, err = Lock(t.Context(), dir, "other/tranche")
	require.ErrorContains(t, err, "(installation tranche-system/tranche, pid "+strconv.Itoa(os.Getpid())+" of "+host+") runs", "the newer one is named")
	newer()
	other, err := Lock(t.Context(), dir, "other/tranche")
	require.NoError(t, err)
	other()
}

func TestLockFolderThatCannotBe(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	_, err := Lock(t.Context(), file, "a")
	require.ErrorContains(t, err, "create the folder of the plugin")

	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, "plugin.lock"), 0o700))
	_, err = Lock(t.Context(), dir, "a")
	require.ErrorContains(t, err, "lock "+dir)

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	unlock, err := Lock(ctx, t.TempDir(), "a")
	if err == nil {
		unlock() // the first try comes before the look at the context
	} else {
		assert.ErrorIs(t, err, context.Canceled)
	}
}

// Nobody goes on without knowing whose the folder is, or without having said so.
func TestLockWhoseHolderIsNotKnown(t *testing.T) {
	for name, tt := range map[string]struct {
		shared bool
		want   string
	}{
		"the first, which cannot write": {false, "write who holds"},
		"another, which cannot read":    {true, "read who holds"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "plugin.lock")
			lock, other := flock.New(path), flock.New(path)
			t.Cleanup(func() { assert.NoError(t, errors.Join(lock.Close(), other.Close())) })
			if tt.shared {
				require.NoError(t, errors.Join(lock.RLock(), other.RLock()))
			} else {
				require.NoError(t, lock.Lock())
			}
			require.NoError(t, os.Remove(path))
			require.NoError(t, os.Symlink(path, path)) // ELOOP, for root too
			refused, err := tryLock(lock, "tranche-system/tranche")
			require.NoError(t, refused)
			require.ErrorContains(t, err, tt.want)
			require.ErrorIs(t, err, syscall.ELOOP)
		})
	}
	require.ErrorIs(t, writeHolder("/dev/full", "a"), syscall.ENOSPC)
	require.ErrorIs(t, writeHolder("/dev/null", "a"), syscall.EINVAL, "it cannot be made shorter")
}

// A folder that the last plugin has removed is no longer the node's.
func TestLockOfARemovedFolder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "plugin.lock")
	lock := flock.New(path)
	require.NoError(t, lock.Lock())
	t.Cleanup(func() { assert.NoError(t, lock.Close()) })
	require.NoError(t, stillThere(lock))
	require.NoError(t, os.Remove(path))
	require.ErrorContains(t, stillThere(lock), "was removed")
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	require.ErrorContains(t, stillThere(lock), "was removed", "another one")
}

func TestLockAlone(t *testing.T) {
	ctx := klog.NewContext(t.Context(), logr.Discard())
	dir := filepath.Join(t.TempDir(), "plugin")
	unlock, err := LockAlone(ctx, dir)
	require.NoError(t, err)
	require.Nil(t, unlock, "there is nothing")

	another, err := Lock(ctx, dir, "a")
	require.NoError(t, err)
	unlock, err = LockAlone(ctx, dir)
	require.NoError(t, err)
	require.Nil(t, unlock, "another plugin works")
	another()
	unlock, err = LockAlone(ctx, dir)
	require.NoError(t, err)
	require.NotNil(t, unlock)
	_, err = Lock(ctx, dir, "a")
	require.ErrorContains(t, err, "holds")
	unlock()
	another, err = Lock(ctx, dir, "a")
	require.NoError(t, err)
	another()

	require.NoError(t, os.Remove(filepath.Join(dir, "plugin.lock")))
	require.NoError(t, os.Symlink("plugin.lock", filepath.Join(dir, "plugin.lock")))
	_, err = LockAlone(ctx, dir)
	require.ErrorIs(t, err, syscall.ELOOP, "one that cannot be seen may be there")
	_, err = Lead(ctx, filepath.Join(dir, "missing"), func() { assert.Fail(t, "it does not lead") })
	require.ErrorContains(t, err, "take the lock of the plugin that publishes")
}
