package controlplane

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// sampleEvery is how often a program's use of memory and processors is read.
const sampleEvery = 500 * time.Millisecond

// Program is one that runs beside the cluster and is measured.
type Program struct {
	// Log is the file of what it prints.
	Log string
	// Exited is closed when it has ended.
	Exited chan struct{}

	name   string
	cmd    *exec.Cmd
	ending chan struct{}

	// mu protects what follows.
	mu   sync.Mutex
	used []Usage
}

// StartProgram starts a program with variables beside those of this process, and reads what it
// uses until it ends. The program ends with ctx. Its log has its name.
func (c *Cluster) StartProgram(ctx context.Context, name, path string, env []string, args ...string) (*Program, error) {
	p := &Program{
		name: name, Log: filepath.Join(c.Dir, "logs", name+".log"),
		Exited: make(chan struct{}), ending: make(chan struct{}),
	}
	log, err := os.Create(p.Log)
	if err != nil {
		return nil, err
	}
	defer log.Close() //nolint:errcheck // the program has it
	p.cmd = exec.CommandContext(ctx, path, args...)
	p.cmd.Stdout, p.cmd.Stderr, p.cmd.SysProcAttr = log, log, EndWithThis()
	p.cmd.Env = append(os.Environ(), env...)
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		_ = p.cmd.Wait()
		close(p.Exited)
	}()
	go p.sample()
	return p, nil
}

// EndWithThis ends a program when this process does, however it ends.
func EndWithThis() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }

// Usage is what the program has used so far.
func (p *Program) Usage() (Usage, error) { return usageOf(p.cmd.Process.Pid) }

// sample reads what the program uses until it ends.
func (p *Program) sample() {
	tick := time.NewTicker(sampleEvery)
	defer tick.Stop()
	for {
		if u, err := p.Usage(); err == nil {
			p.mu.Lock()
			p.used = append(p.used, u)
			p.mu.Unlock()
		}
		select {
		case <-tick.C:
		case <-p.ending:
			return
		case <-p.Exited:
			return
		}
	}
}

// UsedSince is what was read from a moment on.
func (p *Program) UsedSince(at time.Time) []Usage {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range p.used {
		if p.used[i].At.After(at) {
			return p.used[i:]
		}
	}
	return nil
}

// Stop ends the program, and returns an error if it had to be killed.
func (p *Program) Stop() error {
	close(p.ending)
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.Exited:
		return nil
	case <-time.After(30 * time.Second):
		_ = p.cmd.Process.Kill()
		return fmt.Errorf("%s does not end", p.name)
	}
}
