package machine

import (
	"fmt"
	"os"
	"os/signal"
	"sort"
	"sync"
	"syscall"
	"time"
)

// Process says what to run in a machine.
type Process struct {
	Name string
	// Args is the command, its program first, with its complete path.
	Args []string
	Env  []string
	// Log is the host's file to which its output is appended.
	Log string
}

// Status is what a machine knows of a process that it was told to start.
type Status struct {
	Name    string
	Pid     int // within the machine
	Running bool
	Started time.Time
	// Ended and Exit say when and how it ended.
	Ended time.Time
	Exit  string
}

// table is the processes of a machine. Its methods are called through the
// machine's socket.
type table struct {
	mu        sync.Mutex
	processes map[string]*Status
}

func newTable() *table { return &table{processes: map[string]*Status{}} }

// Start starts a process that is not running.
func (t *table) Start(process Process, status *Status) error {
	log, err := os.OpenFile(process.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("open the log of %s: %w", process.Name, err)
	}
	defer log.Close()
	null, err := os.Open(os.DevNull)
	if err != nil {
		return err
	}
	defer null.Close()

	// Held until the process is known, so that reap finds one that ends at once.
	t.mu.Lock()
	defer t.mu.Unlock()
	if known := t.processes[process.Name]; known != nil && known.Running {
		return fmt.Errorf("%s is running already (process %d)", process.Name, known.Pid)
	}
	pid, err := syscall.ForkExec(process.Args[0], process.Args, &syscall.ProcAttr{
		Dir:   "/",
		Env:   process.Env,
		Files: []uintptr{null.Fd(), log.Fd(), log.Fd()},
		Sys:   &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		return fmt.Errorf("start %s (%s): %w", process.Name, process.Args[0], err)
	}
	t.processes[process.Name] = &Status{Name: process.Name, Pid: pid, Running: true, Started: time.Now()}
	*status = *t.processes[process.Name]
	return nil
}

// StopRequest says how to end a process: with SIGTERM, and SIGKILL after
// Grace; with SIGKILL at once where Grace is zero.
type StopRequest struct {
	Name  string
	Grace time.Duration
}

// Stop ends a process and waits for its end. One that does not run is fine.
func (t *table) Stop(request StopRequest, status *Status) error {
	pid, running := t.running(request.Name)
	if !running {
		return nil
	}
	if request.Grace > 0 {
		_ = syscall.Kill(pid, syscall.SIGTERM)
		t.awaitEnd(request.Name, request.Grace)
	}
	if _, running := t.running(request.Name); running {
		_ = syscall.Kill(pid, syscall.SIGKILL)
		t.awaitEnd(request.Name, 10*time.Second)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	*status = *t.processes[request.Name]
	if status.Running {
		return fmt.Errorf("%s (process %d) does not end", request.Name, pid)
	}
	return nil
}

// List returns all processes that were ever started, by name.
func (t *table) List(_ struct{}, all *[]Status) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, status := range t.processes {
		*all = append(*all, *status)
	}
	sort.Slice(*all, func(i, j int) bool { return (*all)[i].Name < (*all)[j].Name })
	return nil
}

func (t *table) running(name string) (pid int, running bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	status := t.processes[name]
	if status == nil {
		return 0, false
	}
	return status.Pid, status.Running
}

func (t *table) awaitEnd(name string, timeout time.Duration) {
	for deadline := time.Now().Add(timeout); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if _, running := t.running(name); !running {
			return
		}
	}
}

// reap takes note of every process that ends, for ever. Processes whose parent
// has ended become children of the machine's first process, that is ours.
func (t *table) reap() {
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGCHLD)
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		switch err {
		case syscall.ECHILD:
			// No child at all: wait for one to end that has yet to start.
			select {
			case <-ended:
			case <-time.After(100 * time.Millisecond):
			}
		case nil:
			t.noteEnd(pid, status)
		}
	}
}

func (t *table) noteEnd(pid int, wait syscall.WaitStatus) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, status := range t.processes {
		if status.Pid == pid && status.Running {
			status.Running, status.Ended, status.Exit = false, time.Now(), describe(wait)
		}
	}
}

func describe(wait syscall.WaitStatus) string {
	if wait.Signaled() {
		return fmt.Sprintf("ended by signal %d (%s)", wait.Signal(), wait.Signal())
	}
	return fmt.Sprintf("ended with status %d", wait.ExitStatus())
}
