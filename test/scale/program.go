package main

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

// program is one that runs beside the cluster and is measured.
type program struct {
	name   string
	cmd    *exec.Cmd
	log    string
	exited chan struct{}
	ending chan struct{}

	// mu protects what follows.
	mu   sync.Mutex
	used []usage
}

// startProgram starts a program, and reads what it uses until it ends. Its log has its
// name.
func (c *cluster) startProgram(ctx context.Context, name, path string, env []string, args ...string) (*program, error) {
	p := &program{
		name: name, log: filepath.Join(c.dir, "logs", name+".log"),
		exited: make(chan struct{}), ending: make(chan struct{}),
	}
	log, err := os.Create(p.log)
	if err != nil {
		return nil, err
	}
	defer log.Close() //nolint:errcheck // the program has it
	p.cmd = exec.CommandContext(ctx, path, args...)
	p.cmd.Stdout, p.cmd.Stderr = log, log
	p.cmd.Env = append(os.Environ(), env...)
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		_ = p.cmd.Wait()
		close(p.exited)
	}()
	go p.sample()
	return p, nil
}

// usage is what the program has used so far.
func (p *program) usage() (usage, error) { return usageOf(p.cmd.Process.Pid) }

// sample reads what the program uses until it ends.
func (p *program) sample() {
	tick := time.NewTicker(sampleEvery)
	defer tick.Stop()
	for {
		if u, err := p.usage(); err == nil {
			p.mu.Lock()
			p.used = append(p.used, u)
			p.mu.Unlock()
		}
		select {
		case <-tick.C:
		case <-p.ending:
			return
		case <-p.exited:
			return
		}
	}
}

// usedSince is what was read from a moment on.
func (p *program) usedSince(at time.Time) []usage {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range p.used {
		if p.used[i].at.After(at) {
			return p.used[i:]
		}
	}
	return nil
}

func (p *program) stop() error {
	close(p.ending)
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.exited:
		return nil
	case <-time.After(30 * time.Second):
		_ = p.cmd.Process.Kill()
		return fmt.Errorf("%s does not end", p.name)
	}
}
