package mps

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// launchLog is where launcher and daemon say what goes wrong.
const launchLog = "launch.log"

// options are how a daemon is run: in the foreground, so that the process that was
// launched is the daemon; with one server for the users of all containers.
var options = []string{"-f", "-multiuser-server"}

// Start starts a daemon, unless it runs, and returns without waiting until it is
// ready. One that runs with another spec is refused with ErrOtherSpec. Clients find the
// daemon where one was that has died.
func (s *Supervisor) Start(ctx context.Context, spec Spec) error {
	if err := checkID(s.cfg.Dir, spec.ID); err != nil {
		return err
	}
	if err := spec.check(); err != nil {
		return err
	}
	return s.start(ctx, s.folder(spec.ID), spec)
}

func (s *Supervisor) start(ctx context.Context, f folder, spec Spec) error {
	if err := s.prepare(ctx, f, spec); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	_, alive, err := f.process()
	if err != nil {
		return err
	}
	if alive || s.isSettling(f) {
		s.settle(f, spec, nil) //nolint:contextcheck // it goes on when this call has returned
		return nil
	}
	child, err := s.launch(f) //nolint:contextcheck // the daemon lives on
	if err != nil {
		return fmt.Errorf("launch MPS daemon %s: %w", spec.ID, err)
	}
	delete(s.settling, f.id())
	s.settle(f, spec, child) //nolint:contextcheck // it goes on when this call has returned
	return nil
}

// prepare makes the folder and writes down what the daemon is for.
func (s *Supervisor) prepare(ctx context.Context, f folder, spec Spec) error {
	ctx, cancel := context.WithTimeout(ctx, launchPatience)
	defer cancel()
	for {
		if err := f.make(); err != nil {
			return fmt.Errorf("make the folder of MPS daemon %s: %w", spec.ID, err)
		}
		err := prepareIn(ctx, f, spec)
		if !errors.Is(err, fs.ErrNotExist) || ctx.Err() != nil {
			return err
		}
		// It was stopped meanwhile, and its folder removed.
	}
}

func prepareIn(ctx context.Context, f folder, spec Spec) error {
	unlock, err := f.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	old, err := f.spec()
	switch {
	case err == nil && old.equal(spec):
		return nil
	case err == nil:
		return fmt.Errorf("%w: MPS daemon %s is for %+v, and not for %+v: it must be stopped first", ErrOtherSpec, spec.ID, old, spec)
	case !errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("MPS daemon %s: %w", spec.ID, err)
	}
	return f.write("spec.json", spec)
}

// child is a launcher that this process has started, on its way to being a daemon.
type child struct {
	// ended is closed when it is, and err says how.
	ended chan struct{}
	err   error
}

// launch runs the launcher. It outlives whatever asked for it.
func (s *Supervisor) launch(f folder) (*child, error) {
	log, err := os.OpenFile(f.path(launchLog), os.O_WRONLY|os.O_CREATE|os.O_TRUNC|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := s.command(context.Background(), launch{dir: f, options: s.daemonOptions()})
	cmd.Stdout, cmd.Stderr = log, log
	// Nothing that is sent to the plugin's group is for the daemon.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	c := &child{ended: make(chan struct{})}
	go func() {
		c.err = cmd.Wait()
		close(c.ended)
	}()
	return c, nil
}

// exitCode is what a child ended with, -1 for one that a signal ended.
func (c *child) exitCode() int {
	var exit *exec.ExitError
	if errors.As(c.err, &exit) {
		return exit.ExitCode()
	}
	return 0
}

// Probe reports whether MPS works on this node: nil if a daemon starts, answers and
// ends. It serves no GPU.
func (s *Supervisor) Probe(ctx context.Context) error {
	if err := os.MkdirAll(s.cfg.Dir, 0o755); err != nil {
		return fmt.Errorf("try MPS: %w", err)
	}
	s.sweep(ctx)
	err := s.probe(ctx, options)
	var ended *endedError
	// Daemons older than this option end at once.
	if errors.As(err, &ended) && !errors.Is(err, errNoProgram) {
		if s.probe(ctx, options[:1]) == nil {
			s.cfg.Logger.Info("The MPS daemon of this driver has no -multiuser-server: containers that share it must run as one user", "error", err.Error())
			return nil
		}
	}
	if err != nil {
		return fmt.Errorf("try MPS: %w", err)
	}
	return nil
}

// probe tries a daemon with options, which it keeps for those to come if it works.
func (s *Supervisor) probe(ctx context.Context, with []string) error {
	self, err := identify(os.Getpid())
	if err != nil {
		return err
	}
	id := fmt.Sprintf("%s%d-%d", probePrefix, self.PID, self.Start)
	f := s.folder(id)
	if err := checkID(s.cfg.Dir, id[1:]); err != nil {
		return err
	}
	s.mu.Lock()
	before := s.options
	s.options = with
	s.mu.Unlock()
	err = s.start(ctx, f, Spec{ID: id})
	if err == nil {
		err = s.wait(ctx, f)
	}
	stopCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*s.cfg.Grace+time.Second)
	defer cancel()
	if stopErr := s.stop(stopCtx, f); err == nil {
		err = stopErr
	}
	if err != nil {
		s.mu.Lock()
		s.options = before
		s.mu.Unlock()
	}
	return err
}

// probePrefix begins the names of daemons that are tried; List does not see them.
const probePrefix = ".probe-"

// sweep removes what a plugin left that died while it tried, or removed a daemon.
func (s *Supervisor) sweep(ctx context.Context) {
	entries, err := os.ReadDir(s.cfg.Dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), gonePrefix) {
			_ = os.RemoveAll(filepath.Join(s.cfg.Dir, e.Name()))
			continue
		}
		var by process
		if n, _ := fmt.Sscanf(e.Name(), probePrefix+"%d-%d", &by.PID, &by.Start); n != 2 {
			continue
		}
		if now, err := identify(by.PID); err == nil && now.Start == by.Start || err != nil && !errors.Is(err, os.ErrProcessDone) {
			continue
		}
		if err := s.stop(ctx, s.folder(e.Name())); err != nil {
			s.cfg.Logger.Info("What an earlier try of MPS left stays", "error", err.Error())
		}
	}
}

func (s *Supervisor) daemonOptions() []string {
	if len(s.options) > 0 {
		return s.options
	}
	return options
}
