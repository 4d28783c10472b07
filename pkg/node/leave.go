package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"k8s.io/klog/v2"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/node/kubelet"
)

// leave removes all files of Tranche from the node, when the last plugin ends. If claims hold
// GPUs, everything stays, so that the next installation can release them.
func (c *Config) leave(ctx context.Context) error {
	unlock, err := kubelet.LockAlone(ctx, c.DataDir())
	if unlock == nil {
		return err
	}
	defer unlock()
	held, err := filepath.Glob(filepath.Join(c.DataDir(), "claims", "*.json*"))
	if err != nil {
		return fmt.Errorf("list the records of claims on node %s: %w", c.NodeName, err)
	}
	if len(held) > 0 {
		klog.FromContext(ctx).Info("There are records of claims that hold GPUs of this node, or that have left partitions on them, so no files are removed: they are needed to release the claims. Remove broken records by hand", "records", held)
		return nil
	}
	var errs []error
	for _, pattern := range []string{
		filepath.Join(c.CDIDir, names.DriverName+"-*"),
		filepath.Join(c.CDIDir, names.DriverName+"_*"),
		filepath.Join(c.registrarDir(), names.DriverName+"*-reg.sock"),
	} {
		files, err := filepath.Glob(pattern)
		errs = append(errs, err)
		for _, file := range files {
			if err := os.Remove(file); !errors.Is(err, os.ErrNotExist) {
				errs = append(errs, err)
			}
		}
	}
	errs = append(errs, c.endDaemons(ctx), os.RemoveAll(c.DataDir()))
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("remove the files of Tranche from node %s (remove them by hand): %w", c.NodeName, err)
	}
	klog.FromContext(ctx).Info("Removed all files of Tranche from this node")
	return nil
}

// endDaemonsTimeout limits how long stopping all MPS daemons of the node may take.
const endDaemonsTimeout = 30 * time.Second

// endDaemons stops the remaining MPS daemons, and removes their folder.
func (c *Config) endDaemons(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endDaemonsTimeout)
	defer cancel()
	s := c.supervisor(ctx, "")
	ids, err := s.List()
	errs := []error{err}
	for _, id := range ids {
		errs = append(errs, s.Stop(ctx, id))
	}
	if err := errors.Join(errs...); err != nil {
		return err // the folders identify the daemons that still run
	}
	return os.RemoveAll(c.mpsDir())
}
