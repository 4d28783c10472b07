package machine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// InitCommand is the argument with which this program is started again as the
// first process of a machine; the machine's folder follows.
const InitCommand = "machine-init"

// identityFile in a machine's folder says which process is its first.
const identityFile = "init.json"

// Machine is a machine that was started.
type Machine struct {
	Name string
	Dir  string
	Init Identity
}

// Open returns the machine whose folder is dir, whether it runs or not.
func Open(dir string) (Machine, error) {
	machine := Machine{Name: filepath.Base(dir), Dir: dir}
	content, err := os.ReadFile(filepath.Join(dir, identityFile))
	if err != nil {
		return machine, err
	}
	if err := json.Unmarshal(content, &machine.Init); err != nil {
		return machine, fmt.Errorf("%s in %s: %w", identityFile, dir, err)
	}
	return machine, nil
}

// Running reports whether the machine runs.
func (m Machine) Running() bool { return m.Init.Alive() }

// Start starts a machine. It gives the listener, which may be nil, to the
// machine as one more source of connections to forward.
func Start(ctx context.Context, spec Spec, listener *net.TCPListener) (Machine, error) {
	machine := Machine{Name: spec.Name, Dir: spec.Dir}
	if err := spec.write(); err != nil {
		return machine, err
	}
	starter, err := newStarter(spec, listener)
	if err != nil {
		return machine, fmt.Errorf("start machine %s: %w", spec.Name, err)
	}
	defer starter.close()
	if machine.Init, err = starter.start(spec.Dir); err != nil {
		return machine, fmt.Errorf("start machine %s: %w", spec.Name, err)
	}
	if err := awaitReady(ctx, starter.ready); err != nil {
		_ = machine.Stop()
		return machine, fmt.Errorf("set up machine %s: %w", spec.Name, err)
	}
	return machine, nil
}

// starter is the first process of a machine and our ends of its pipes.
type starter struct {
	command *exec.Cmd
	ready   *os.File // to read what went wrong
	proceed *os.File // to write one byte
	log     *os.File
}

func newStarter(spec Spec, listener *net.TCPListener) (*starter, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	log, err := os.OpenFile(filepath.Join(spec.Dir, "init.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	ready, readyWriter, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	proceedReader, proceed, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	//nolint:noctx // the machine outlives the program that starts it
	command := exec.Command(self, InitCommand, spec.Dir)
	command.Dir = "/"
	command.Stdout, command.Stderr = log, log
	command.ExtraFiles = []*os.File{readyWriter, proceedReader}
	if listener != nil {
		file, err := listener.File()
		if err != nil {
			return nil, err
		}
		command.ExtraFiles = append(command.ExtraFiles, file)
	}
	command.SysProcAttr = &syscall.SysProcAttr{
		Setsid:     true,
		Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS | syscall.CLONE_NEWNET | syscall.CLONE_NEWUTS,
	}
	return &starter{command: command, ready: ready, proceed: proceed, log: log}, nil
}

// start starts the process, writes down who it is and lets it proceed.
func (s *starter) start(dir string) (Identity, error) {
	if err := s.command.Start(); err != nil {
		return Identity{}, fmt.Errorf("make its namespaces: %w", err)
	}
	go func() { _ = s.command.Wait() }() // reaps it if it ends before us
	for _, file := range s.command.ExtraFiles {
		file.Close()
	}
	identity, err := Identify(s.command.Process.Pid)
	if err != nil {
		return identity, fmt.Errorf("it ended at once, see %s: %w", filepath.Join(dir, "init.log"), err)
	}
	content, err := json.Marshal(identity)
	if err != nil {
		return identity, err
	}
	if err := os.WriteFile(filepath.Join(dir, identityFile), content, 0o644); err != nil {
		return identity, err
	}
	_, err = s.proceed.Write([]byte{1})
	return identity, err
}

func (s *starter) close() {
	s.ready.Close()
	s.proceed.Close()
	s.log.Close()
}

// awaitReady waits until the machine says that it is set up, or why not.
func awaitReady(ctx context.Context, ready *os.File) error {
	stop := context.AfterFunc(ctx, func() { _ = ready.SetReadDeadline(time.Now()) })
	defer stop()
	message, err := io.ReadAll(ready)
	if err != nil {
		return errors.Join(ctx.Err(), err)
	}
	if len(message) > 0 {
		return errors.New(string(message))
	}
	return nil
}

// Stop ends the machine and everything in it.
func (m Machine) Stop() error {
	if err := m.Init.Kill(30 * time.Second); err != nil {
		return fmt.Errorf("stop machine %s: %w", m.Name, err)
	}
	return nil
}

// StartProcess starts a process in the machine.
func (m Machine) StartProcess(process Process) (Status, error) {
	var status Status
	err := call(m.Dir, "Start", process, &status)
	return status, err
}

// StopProcess ends a process of the machine and waits for its end.
func (m Machine) StopProcess(name string, grace time.Duration) error {
	var status Status
	return call(m.Dir, "Stop", StopRequest{Name: name, Grace: grace}, &status)
}

// Processes returns what StartProcess has started, by name.
func (m Machine) Processes() ([]Status, error) {
	var all []Status
	err := call(m.Dir, "List", struct{}{}, &all)
	return all, err
}
