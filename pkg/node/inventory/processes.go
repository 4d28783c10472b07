package inventory

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/prometheus/procfs"
)

// processes finds programs that run on the host. Only one goroutine uses it.
type processes struct {
	// proc is the host's /proc.
	proc string
	// programs are the names or paths to look for, running those that were found.
	programs, running []string
}

// look updates running, and reports whether it has changed. On an error, it stays.
func (p *processes) look() (changed bool, err error) {
	var running []string
	for _, program := range p.programs {
		runs, err := runsPrivileged(p.proc, program)
		if err != nil {
			return false, fmt.Errorf("look for running program %s: %w", program, err)
		}
		if runs {
			running = append(running, program)
		}
	}
	changed = !slices.Equal(running, p.running)
	p.running = running
	return changed, nil
}

const (
	// commLength is the length of a process's name (TASK_COMM_LEN without the zero byte).
	commLength = 15
	// capSysAdmin is the bit of CAP_SYS_ADMIN, which partitioning a GPU requires.
	capSysAdmin = 1 << 21
)

// runsPrivileged reports whether a program runs with CAP_SYS_ADMIN in the host's user namespace,
// which is also that of this plugin. Any container can use the name of the program, but only
// a privileged one has that capability. A program with a common name is given by its path in
// its container.
func runsPrivileged(proc, program string) (bool, error) {
	files, err := procfs.NewFS(proc)
	if err != nil {
		return false, err
	}
	self, err := files.Self()
	if err != nil {
		return false, err
	}
	ours, err := self.Namespaces()
	if err != nil {
		return false, err
	}
	all, err := files.AllProcs()
	if err != nil {
		return false, err
	}
	var failed error
	for _, p := range all {
		privileged, err := isPrivileged(p, program, ours["user"])
		switch {
		case privileged:
			return true, nil
		case err != nil && !ended(err):
			failed = cmp.Or(failed, fmt.Errorf("process %d: %w", p.PID, err))
		}
	}
	return false, failed
}

// isPrivileged reports whether a process runs a program, and has CAP_SYS_ADMIN in a user
// namespace.
func isPrivileged(p procfs.Proc, program string, user procfs.Namespace) (bool, error) {
	name := filepath.Base(program)
	comm, err := p.Comm()
	if err != nil || comm != name[:min(len(name), commLength)] {
		return false, err
	}
	if filepath.IsAbs(program) {
		path, err := p.Executable()
		if err != nil || path != program {
			return false, err
		}
	}
	status, err := p.NewStatus()
	if err != nil || status.CapEff&capSysAdmin == 0 {
		return false, err
	}
	namespaces, err := p.Namespaces()
	return err == nil && namespaces["user"] == user, err
}

// ended reports whether an error means that the process has ended.
func ended(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH)
}
