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

// readyPoll is how often a daemon that starts is looked at.
const readyPoll = 20 * time.Millisecond

// endedError says that a daemon ended that should run.
type endedError struct {
	id    string
	words string
	cause error
}

func (e *endedError) Error() string {
	return fmt.Sprintf("MPS daemon %s has ended: %s", e.id, e.words)
}

func (e *endedError) Unwrap() error { return e.cause }

// isSettling reports whether this process brings a daemon to readiness now. s.mu is
// held.
func (s *Supervisor) isSettling(f folder) bool {
	way, ok := s.settling[f.id()]
	if !ok {
		return false
	}
	select {
	case <-way.done:
		return false
	default:
		return true
	}
}

// settle brings a daemon to readiness, in the background, unless that is done or on
// its way. child is its process if this process has launched it. s.mu is held.
func (s *Supervisor) settle(f folder, spec Spec, c *child) {
	if p, alive, _ := f.process(); s.isSettling(f) || alive && f.isReady(p) {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), s.cfg.Stand)
	way := &settling{done: make(chan struct{}), cancel: cancel}
	s.settling[f.id()] = way
	go func() {
		defer cancel()
		way.err = s.bringUp(ctx, f, spec, c)
		close(way.done)
	}()
}

// bringUp waits until the daemon answers, gives it its limits and writes down that
// it is ready.
func (s *Supervisor) bringUp(ctx context.Context, f folder, spec Spec, c *child) error {
	daemon, err := s.awaitAnswer(ctx, f, c)
	if err != nil {
		return err
	}
	if err := s.setUp(ctx, f, spec); err != nil {
		if daemon.hasEnded() {
			return died(f, nil)
		}
		return err
	}
	// Another may have taken its place meanwhile, which is not ready.
	if daemon.hasEnded() {
		return died(f, nil)
	}
	if err := f.write("ready", daemon); err != nil {
		return fmt.Errorf("MPS daemon %s is ready, and it cannot be written down: %w", f.id(), err)
	}
	return nil
}

// awaitAnswer waits until a daemon answers, and says which process it is.
func (s *Supervisor) awaitAnswer(ctx context.Context, f folder, c *child) (process, error) {
	last := errors.New("it has made no socket")
	ticks := time.NewTicker(readyPoll)
	defer ticks.Stop()
	for {
		p, alive, err := f.process()
		switch {
		case c != nil && c.hasEnded() && c.exitCode() == exitNoProgram:
			return p, died(f, errNoProgram)
		case c != nil && c.hasEnded() && c.exitCode() != exitRuns:
			return p, died(f, nil)
		case err != nil:
			last = err
		case c == nil && !alive:
			return p, died(f, nil)
		case c != nil && c.hasEnded():
			c = nil // another process has launched it
		case alive && s.isChannel(f):
			if _, err := s.ask(ctx, f, "get_server_list"); err == nil {
				return p, nil
			} else if ctx.Err() == nil {
				last = err
			}
		}
		select {
		case <-ctx.Done():
			return p, fmt.Errorf("MPS daemon %s does not come up: %w; %s", f.id(), last, f.lastWords())
		case <-ticks.C:
		}
	}
}

func (c *child) hasEnded() bool {
	select {
	case <-c.ended:
		return true
	default:
		return false
	}
}

func died(f folder, cause error) error {
	return &endedError{id: f.id(), words: f.lastWords(), cause: cause}
}

// isChannel reports whether a daemon can be asked, by way of a socket, or of a pipe as
// older ones have it. The folder is mounted on the host, where this process sees it by
// way of the host's root folder.
func (s *Supervisor) isChannel(f folder) bool {
	info, err := os.Stat(filepath.Join(s.cfg.HostRoot, f.pipe(), "control"))
	return err == nil && info.Mode()&(os.ModeSocket|os.ModeNamedPipe) != 0
}

// Status says how a daemon is. One that another process has started, and that runs,
// is brought to readiness from here on.
func (s *Supervisor) Status(id string) Status {
	if err := checkID(s.cfg.Dir, id); err != nil {
		return Status{Err: err}
	}
	return s.status(s.folder(id))
}

func (s *Supervisor) status(f folder) Status {
	spec, err := f.spec()
	if errors.Is(err, fs.ErrNotExist) {
		return Status{Gone: true}
	}
	if err != nil {
		return Status{Err: fmt.Errorf("MPS daemon %s: %w", f.id(), err)}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	p, alive, err := f.process()
	switch way := s.settling[f.id()]; {
	case err != nil:
		return Status{Err: err}
	case alive && f.isReady(p):
		return Status{Ready: true}
	case s.isSettling(f):
		return Status{}
	case way != nil && way.err != nil:
		return Status{Err: way.err}
	case alive:
		s.settle(f, spec, nil)
		return Status{}
	case p == process{}:
		return Status{Err: fmt.Errorf("MPS daemon %s was never launched: whoever wanted to has ended", f.id())}
	}
	return Status{Err: died(f, nil)}
}

// Wait waits until a daemon is ready, or will not be.
func (s *Supervisor) Wait(ctx context.Context, id string) error {
	if err := checkID(s.cfg.Dir, id); err != nil {
		return err
	}
	return s.wait(ctx, s.folder(id))
}

func (s *Supervisor) wait(ctx context.Context, f folder) error {
	ticks := time.NewTicker(readyPoll)
	defer ticks.Stop()
	for {
		switch status := s.status(f); { //nolint:contextcheck // what it starts goes on when nobody waits any more
		case status.Ready:
			return nil
		case status.Gone:
			return fmt.Errorf("wait for MPS daemon %s: %w", f.id(), errNoDaemon)
		case status.Err != nil:
			return status.Err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("MPS daemon %s is not ready yet: %w", f.id(), context.Cause(ctx))
		case <-ticks.C:
		}
	}
}
