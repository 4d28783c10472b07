package nodewatch

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"syscall"

	"github.com/prometheus/procfs"
)

// processes looks for programs on the host. Only one goroutine uses it.
type processes struct {
	// proc is the host's /proc.
	proc string
	// programs are looked for, running are those that were found.
	programs, running []string
}

// look looks again, and tells whether the answer has changed. When an error keeps it from
// looking, the last answer stays.
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
	// commLength is how much of a program's name the kernel keeps (TASK_COMM_LEN, less
	// the zero byte).
	commLength = 15
	// capSysAdmin is the bit of CAP_SYS_ADMIN, which changing how a GPU is partitioned
	// takes.
	capSysAdmin = 1 << 21
)

// runsPrivileged tells whether a program runs on the host with CAP_SYS_ADMIN in the user
// namespace of this plugin, which is the host's. A container's process can have any name, but
// that capability only if it is privileged.
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
	name := program[:min(len(program), commLength)]
	var failed error
	for _, p := range all {
		privileged, err := isPrivileged(p, name, ours["user"])
		switch {
		case privileged:
			return true, nil
		case err != nil && !ended(err):
			failed = cmp.Or(failed, fmt.Errorf("process %d: %w", p.PID, err))
		}
	}
	return false, failed
}

// isPrivileged tells whether a process has a name, and CAP_SYS_ADMIN in a user namespace.
func isPrivileged(p procfs.Proc, name string, user procfs.Namespace) (bool, error) {
	comm, err := p.Comm()
	if err != nil || comm != name {
		return false, err
	}
	status, err := p.NewStatus()
	if err != nil || status.CapEff&capSysAdmin == 0 {
		return false, err
	}
	namespaces, err := p.Namespaces()
	return err == nil && namespaces["user"] == user, err
}

// ended tells whether an error says that a process is not there any more.
func ended(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH)
}
