package cluster

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// Down ends the cluster, whatever state it is in, and removes its folder; with
// keepLogs, all but its logs.
func (c *Cluster) Down(keepLogs bool) error {
	if _, err := os.Stat(c.dir); errors.Is(err, os.ErrNotExist) {
		c.say("no cluster in %s", c.dir)
		return nil
	}
	unlock, err := c.lock()
	if err != nil {
		return err
	}
	defer unlock()
	running := len(c.running())
	if err := c.remove(keepLogs); err != nil {
		return err
	}
	c.say("ended the cluster in %s (%d machines ran)", c.dir, running)
	_ = os.Remove(c.path("lock"))
	// The folder may be somebody's own: it goes only if nothing else is in it.
	if err := os.Remove(c.dir); err != nil && !errors.Is(err, syscall.ENOTEMPTY) && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove the cluster's folder: %w", err)
	}
	return nil
}

// remove ends all machines, and with each everything that runs in it and all
// its mounts and devices, and removes what the cluster has written.
func (c *Cluster) remove(keepLogs bool) error {
	for _, machine := range c.machines() {
		if err := machine.Stop(); err != nil {
			return err
		}
	}
	if err := removeCgroup(c.cgroup()); err != nil {
		return err
	}
	written := []string{"machines", "pki", "kubeconfig", "bin", settingsFile}
	if !keepLogs {
		written = append(written, "logs")
	}
	for _, name := range written {
		if err := os.RemoveAll(c.path(name)); err != nil {
			return fmt.Errorf("remove the cluster's files: %w", err)
		}
	}
	return nil
}
