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
	stat, err := parseStat(content)
	if err != nil {
		return process{}, err
	}
	if stat.ended() {
		return process{}, fmt.Errorf("process %d has ended", pid)
	}
	return process{PID: pid, Start: stat.start, Boot: bootID()}, nil
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

// kill ends the process, and the servers that it has started, at once.
func (p process) kill() error {
	if err := killIf(p.PID, p.alive); err != nil {
		return err
	}
	return p.killServers()
}

// killIf ends a process if it is the one that is meant. It takes hold of it before
// the look: what is held cannot become another.
func killIf(pid int, meant func() bool) error {
	handle, err := os.FindProcess(pid)
	if err != nil {
		return nil //nolint:nilerr // it has ended
	}
	defer handle.Release() //nolint:errcheck // nothing hangs on it
	if !meant() {
		return nil
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
			errs = append(errs, killIf(pid, func() bool { return p.hasServer(pid) }))
		}
	}
	return errors.Join(errs...)
}

// hasServer tells whether a running process is one of these programs.
func (p process) hasServer(pid int) bool {
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	stat, err := parseStat(content)
	return err == nil && stat.group == p.PID && stat.start >= p.Start && strings.HasPrefix(stat.name, serverName) && !stat.ended() && p.Boot == bootID()
}

func bootID() string {
	id, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(id))
}

// stat is what is needed of a process's status.
type stat struct {
	name  string
	state byte
	group int
	start uint64
}

// ended tells whether the process waits for its parent to notice.
func (s stat) ended() bool { return s.state == 'Z' || s.state == 'X' }

// parseStat reads /proc/<pid>/stat (proc_pid_stat(5)), fields 2, 3, 5 and 22. The
// second field, the program's name, may hold spaces and parentheses: counting starts
// behind it.
func parseStat(content []byte) (stat, error) {
	begin, end := bytes.IndexByte(content, '('), bytes.LastIndexByte(content, ')')
	fields := strings.Fields(string(content[end+1:]))
	if begin < 0 || end < begin || len(fields) < 20 {
		return stat{}, fmt.Errorf("unexpected process status %q", content)
	}
	group, err := strconv.Atoi(fields[2])
	if err != nil {
		return stat{}, fmt.Errorf("process group in process status %q: %w", content, err)
	}
	start, err := strconv.ParseUint(fields[19], 10, 64)
	if err != nil {
		return stat{}, fmt.Errorf("start time in process status %q: %w", content, err)
	}
	return stat{name: string(content[begin+1 : end]), state: fields[0][0], group: group, start: start}, nil
}

// inGroup tells whether a process is in a control group.
func inGroup(group string, pid int) bool {
	content, err := os.ReadFile(filepath.Join(group, "cgroup.procs"))
	return err == nil && slices.Contains(strings.Fields(string(content)), strconv.Itoa(pid))
}
