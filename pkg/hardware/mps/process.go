package mps

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// process is one that is known by more than its number: a number that the kernel
// has given to another since is not it.
type process struct {
	PID int `json:"pid"`
	// Start is its start time in clock ticks since the boot Boot.
	Start uint64 `json:"start"`
	Boot  string `json:"boot"`
}

// identify returns the identity of a running process.
func identify(pid int) (process, error) {
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return process{}, err
	}
	state, start, err := parseStat(content)
	if err != nil {
		return process{}, err
	}
	if state == 'Z' || state == 'X' {
		return process{}, fmt.Errorf("process %d has ended", pid)
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return process{PID: pid, Start: start, Boot: strings.TrimSpace(string(boot))}, err
}

// alive tells whether the process still runs. One that has ended and waits for its
// parent to notice does not.
func (p process) alive() bool {
	if p.PID <= 1 {
		return false
	}
	now, err := identify(p.PID)
	return err == nil && now == p
}

// kill ends the process, and those of its process group, at once.
func (p process) kill() error {
	if !p.alive() {
		return nil
	}
	// A daemon leads a session; were it not the leader, nothing would be in the group.
	if err := syscall.Kill(-p.PID, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("end process group %d: %w", p.PID, err)
	}
	if !p.alive() {
		return nil
	}
	if err := syscall.Kill(p.PID, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("end process %d: %w", p.PID, err)
	}
	return nil
}

// parseStat reads state and start time of a process, fields 3 and 22 of
// /proc/<pid>/stat (proc_pid_stat(5)). The second field, the program's name, may
// hold spaces and parentheses: counting starts behind it.
func parseStat(content []byte) (state byte, start uint64, err error) {
	end := bytes.LastIndexByte(content, ')')
	fields := strings.Fields(string(content[end+1:]))
	if end < 0 || len(fields) < 20 {
		return 0, 0, fmt.Errorf("unexpected process status %q", content)
	}
	start, err = strconv.ParseUint(fields[19], 10, 64)
	if err != nil {
		return 0, 0, fmt.Errorf("start time in process status %q: %w", content, err)
	}
	return fields[0][0], start, nil
}

// killMember ends a process that was seen in a control group. It is taken hold of
// before the look whether it is still in there: what is held cannot become another.
func killMember(group string, pid int) error {
	handle, err := os.FindProcess(pid)
	if err != nil {
		return nil //nolint:nilerr // it has ended
	}
	defer handle.Release() //nolint:errcheck // nothing hangs on it
	content, err := os.ReadFile(filepath.Join(group, "cgroup.procs"))
	if err != nil || !slices.Contains(strings.Fields(string(content)), strconv.Itoa(pid)) {
		return nil //nolint:nilerr // it has ended, and the group maybe with it
	}
	if err := handle.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("end process %d of control group %s: %w", pid, group, err)
	}
	return nil
}
