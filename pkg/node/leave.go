package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"k8s.io/klog/v2"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/node/handoff"
)

// leave removes what plugins have put on the node, when the last of them ends
// for good. What claims hold stays, with all that it takes to release it: the
// next installation does so.
func (c *Config) leave(ctx context.Context) error {
	unlock, err := handoff.LockAlone(ctx, c.DataDir())
	if unlock == nil {
		return err
	}
	defer unlock()
	held, err := filepath.Glob(filepath.Join(c.DataDir(), "claims", "*.json"))
	if err != nil {
		return fmt.Errorf("look what claims hold: %w", err)
	}
	if len(held) > 0 {
		klog.FromContext(ctx).Info("Claims hold GPUs of this node, so everything stays that is needed to release them", "claims", len(held))
		return nil
	}
	var errs []error
	for _, pattern := range []string{
		filepath.Join(c.CDIDir, gpu.DriverName+"-*"),
		filepath.Join(c.CDIDir, gpu.DriverName+"_*"),
		filepath.Join(c.registrarDir(), gpu.DriverName+"*-reg.sock"),
	} {
		files, err := filepath.Glob(pattern)
		errs = append(errs, err)
		for _, file := range files {
			if err := os.Remove(file); !errors.Is(err, os.ErrNotExist) {
				errs = append(errs, err)
			}
		}
	}
	if c.Machine.Remove != nil {
		errs = append(errs, c.Machine.Remove())
	}
	errs = append(errs, c.endDaemons(ctx), os.RemoveAll(c.DataDir()))
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("remove what is left on node %s, which is now up to you: %w", c.NodeName, err)
	}
	klog.FromContext(ctx).Info("Removed everything of Tranche from this node")
	return nil
}

// endDaemonsTimeout is how long all MPS daemons of the node may take to end.
const endDaemonsTimeout = 30 * time.Second

// endDaemons ends the MPS daemons that nobody has ended, and removes their folder.
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
		return err // their folders tell who they are
	}
	return os.RemoveAll(c.mpsDir())
}
