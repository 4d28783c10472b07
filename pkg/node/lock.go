package node

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// lockFolder makes sure that only one plugin works on the node's folder. Two of
// them would not see each other's claims. The kernel lets go of the lock when
// the process ends, however it ends.
func lockFolder(dir string) (unlock func(), err error) {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return nil, fmt.Errorf("create the plugin's folder: %w", err)
	}
	path := filepath.Join(dir, "plugin.lock")
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the plugin's lock: %w", err)
	}
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		holder, _ := os.ReadFile(path)
		file.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("another Tranche plugin (%s) runs on this node and holds %s: end it first", strings.TrimSpace(string(holder)), path)
		}
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	// For people who find the lock held; the lock itself is the kernel's.
	host, _ := os.Hostname()
	_ = file.Truncate(0)
	_, _ = file.WriteAt(fmt.Appendf(nil, "pid %d of %s\n", os.Getpid(), host), 0)
	return func() { file.Close() }, nil
}
