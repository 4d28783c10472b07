package mps

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// Stop ends a daemon, with its clients if there are any, and removes what there is
// of it. It may be called again, also for one that is not there.
func (s *Supervisor) Stop(ctx context.Context, id string) error {
	if err := checkID(s.cfg.Dir, id); err != nil {
		return err
	}
	return s.stop(ctx, s.folder(id))
}

func (s *Supervisor) stop(ctx context.Context, f folder) error {
	s.unsettle(f)
	if _, err := os.Stat(string(f)); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	lockCtx, cancel := context.WithTimeout(ctx, launchPatience)
	defer cancel()
	// A launcher that hangs keeps the lock; it is killed like a daemon.
	unlock, err := f.lock(lockCtx)
	switch {
	case err == nil:
		defer unlock()
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case lockCtx.Err() == nil:
		return fmt.Errorf("stop MPS daemon %s: %w", f.id(), err)
	}
	if err := s.end(ctx, f); err != nil {
		return fmt.Errorf("stop MPS daemon %s: %w", f.id(), err)
	}
	if err := s.removeGroups(ctx, f); err != nil {
		return fmt.Errorf("stop MPS daemon %s: %w", f.id(), err)
	}
	if err := s.unmount(ctx, f); err != nil {
		return fmt.Errorf("stop MPS daemon %s: %w", f.id(), err)
	}
	if err := f.remove(); err != nil {
		return fmt.Errorf("stop MPS daemon %s: remove its folder: %w", f.id(), err)
	}
	return nil
}

// gonePrefix begins the names of folders that are being removed.
const gonePrefix = ".gone-"

// remove takes the folder out of the way first: whoever waits for its lock finds that
// it is no more, and not half of it.
func (f folder) remove() error {
	gone, err := os.MkdirTemp(filepath.Dir(string(f)), gonePrefix)
	if err != nil {
		return err
	}
	if err := os.Rename(string(f), filepath.Join(gone, f.id())); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.RemoveAll(gone)
}

// unsettle ends what this process does about a daemon.
func (s *Supervisor) unsettle(f folder) {
	s.mu.Lock()
	way := s.settling[f.id()]
	delete(s.settling, f.id())
	s.mu.Unlock()
	if way != nil {
		way.cancel()
		<-way.done // it ends: every wait in it has the context
	}
}

// end ends the daemon's process: it is asked to, and made to after a while.
func (s *Supervisor) end(ctx context.Context, f folder) error {
	p, alive, err := f.process()
	if err != nil {
		return err
	}
	if !alive {
		return p.killServers()
	}
	ctx, cancel := context.WithTimeout(ctx, 2*s.cfg.Grace)
	defer cancel()
	grace, cancelGrace := context.WithTimeout(ctx, s.cfg.Grace)
	defer cancelGrace()
	if s.isChannel(f) {
		// With clients attached, or hanging, it does not end; that is looked at below.
		if _, err := s.ask(grace, f, "quit"); err == nil && awaitEnd(grace, p) == nil {
			return p.killServers()
		}
	}
	if err := p.kill(); err != nil {
		return err
	}
	return awaitEnd(ctx, p)
}

// endPoll is how often an ending process is looked at.
const endPoll = 10 * time.Millisecond

func awaitEnd(ctx context.Context, p process) error {
	for !p.hasEnded() {
		select {
		case <-ctx.Done():
			return fmt.Errorf("process %d does not end: %w", p.PID, context.Cause(ctx))
		case <-time.After(endPoll):
		}
	}
	return nil
}

// removeGroups ends what the daemon left running, its servers, and removes its
// control groups. Their folders are written down by the host's names.
func (s *Supervisor) removeGroups(ctx context.Context, f folder) error {
	var made controlGroups
	if err := f.read("cgroups", &made); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Grace)
	defer cancel()
	for _, group := range made.Groups {
		dir := filepath.Join(s.cfg.HostRoot, group)
		for {
			err := errors.Join(killGroup(dir), removeGroup(dir))
			if err == nil {
				break
			}
			select {
			case <-ctx.Done():
				return err
			case <-time.After(endPoll):
			}
		}
	}
	return nil
}
