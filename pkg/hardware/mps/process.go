package mps

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/prometheus/procfs"
)

// process is one that is known by more than its number: a number that the kernel
// has given to another since is not it.
type process struct {
	PID int `json:"pid"`
	// Start is its start time in clock ticks since the boot Boot.
	Start uint64 `json:"start"`
	Boot  string `json:"boot"`
}

// identify returns the identity of a running process. It fails with os.ErrProcessDone if
// there is none.
func identify(pid int) (process, error) {
	stat, err := statOf(pid)
	if err != nil {
		return process{}, err
	}
	boot, err := bootID()
	if err != nil {
		return process{}, err
	}
	return process{PID: pid, Start: stat.Starttime, Boot: boot}, nil
}

// alive reports whether the process still runs. One that has ended and waits for its
// parent to notice does not. It fails if that cannot be found out now.
func (p process) alive() (bool, error) {
	if p.PID <= 1 {
		return false, nil
	}
	now, err := identify(p.PID)
	if errors.Is(err, os.ErrProcessDone) {
		return false, nil
	}
	return err == nil && now == p, err
}

// hasEnded reports whether the process surely does not run any more.
func (p process) hasEnded() bool {
	alive, err := p.alive()
	return err == nil && !alive
}

// kill ends the process, and the servers that it has started, at once.
func (p process) kill() error {
	if err := killIf(p.PID, p.alive); err != nil {
		return err
	}
	return p.killServers()
}

// killIf ends a process if it is the one that is meant. It takes hold of it before
// the look: what is held cannot become another.
func killIf(pid int, meant func() (bool, error)) error {
	handle, err := os.FindProcess(pid)
	if err != nil {
		return nil //nolint:nilerr // it has ended
	}
	defer handle.Release() //nolint:errcheck // nothing hangs on it
	if is, err := meant(); err != nil || !is {
		return err
	}
	if err := handle.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("end process %d: %w", pid, err)
	}
	return nil
}

// serverName begins the names of NVIDIA's programs, as the kernel cuts them off.
const serverName = "nvidia-cuda-mps"

// killServers ends what a daemon that has died left running: NVIDIA's programs in its
// process group that started after it. A daemon leads a group, and no other can have
// its number while one is in there.
func (p process) killServers() error {
	if p.PID <= 1 {
		return nil
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil && pid != p.PID {
			errs = append(errs, killIf(pid, func() (bool, error) { return p.hasServer(pid) }))
		}
	}
	return errors.Join(errs...)
}

// hasServer reports whether a running process is one of these programs.
func (p process) hasServer(pid int) (bool, error) {
	stat, err := statOf(pid)
	if errors.Is(err, os.ErrProcessDone) {
		return false, nil
	}
	if err != nil || stat.PGRP != p.PID || stat.Starttime < p.Start || !strings.HasPrefix(stat.Comm, serverName) {
		return false, err
	}
	boot, err := bootID()
	return err == nil && p.Boot == boot, err
}

func bootID() (string, error) {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(id)), err
}

// statOf reads the status of a running process. It fails with os.ErrProcessDone if there is none.
func statOf(pid int) (procfs.ProcStat, error) {
	p, err := procfs.NewProc(pid)
	if err != nil {
		return procfs.ProcStat{}, orDone(err)
	}
	s, err := p.Stat()
	if err == nil && (s.State == "Z" || s.State == "X") { // it waits for its parent to notice
		err = os.ErrProcessDone
	}
	return s, orDone(err)
}

// orDone is os.ErrProcessDone for the errors that files in /proc have of a process that has ended:
// its folder is gone, or goes while they are read. Any other error says nothing about the process.
func orDone(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
		return os.ErrProcessDone
	}
	return err
}

// inGroup reports whether a process is in a control group.
func inGroup(group string, pid int) (bool, error) {
	content, err := os.ReadFile(filepath.Join(group, "cgroup.procs"))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return slices.Contains(strings.Fields(string(content)), strconv.Itoa(pid)), err
}
