package cluster

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// lock makes commands that change the cluster wait for each other.
func (c *Cluster) lock() (unlock func(), err error) {
	for {
		if err := os.MkdirAll(c.dir, 0o755); err != nil {
			return nil, fmt.Errorf("make the cluster's folder: %w", err)
		}
		file, err := os.OpenFile(c.path("lock"), os.O_CREATE|os.O_RDWR|unix.O_CLOEXEC, 0o644)
		if err != nil {
			return nil, fmt.Errorf("lock the cluster's folder: %w", err)
		}
		err = unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if errors.Is(err, unix.EWOULDBLOCK) {
			c.say("another command is at work on %s: waiting for it", c.dir)
			err = unix.Flock(int(file.Fd()), unix.LOCK_EX)
		}
		if err != nil {
			file.Close()
			return nil, fmt.Errorf("lock %s: %w", c.dir, err)
		}
		// Whom we waited for may have been `down`, which removes the file.
		if isCurrent(file) {
			return func() { file.Close() }, nil
		}
		file.Close()
	}
}

func isCurrent(file *os.File) bool {
	locked, err := file.Stat()
	if err != nil {
		return false
	}
	current, err := os.Stat(file.Name())
	return err == nil && os.SameFile(locked, current)
}
