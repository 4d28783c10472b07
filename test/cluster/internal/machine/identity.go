package machine

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// Identity is a process that is known by more than its number: a number that
// the kernel has given to somebody else since is not it.
type Identity struct {
	Pid int `json:"pid"`
	// Start is the start time in clock ticks since the boot Boot.
	Start uint64 `json:"start"`
	Boot  string `json:"boot"`
}

// Identify returns the identity of a running process.
func Identify(pid int) (Identity, error) {
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return Identity{}, err
	}
	stat, err := parseStat(content)
	if err != nil {
		return Identity{}, err
	}
	if stat.ended() {
		return Identity{}, fmt.Errorf("process %d has ended", pid)
	}
	return Identity{Pid: pid, Start: stat.start, Boot: bootID()}, nil
}

// Alive reports whether the process still runs. One that has ended and waits for
// its parent to notice does not.
func (i Identity) Alive() bool {
	if i.Pid <= 0 {
		return false
	}
	now, err := Identify(i.Pid)
	return err == nil && now == i
}

// Kill ends the process at once and waits until it is gone.
func (i Identity) Kill(timeout time.Duration) error {
	// The handle is taken before the check: what it names cannot change then.
	process, err := os.FindProcess(i.Pid)
	if err != nil || !i.Alive() {
		return nil
	}
	defer process.Release()
	if err := process.Kill(); err != nil && i.Alive() {
		return fmt.Errorf("end process %d: %w", i.Pid, err)
	}
	for deadline := time.Now().Add(timeout); i.Alive(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			return fmt.Errorf("process %d does not end: it has been killed and is still there after %s", i.Pid, timeout)
		}
	}
	return nil
}

func bootID() string {
	id, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(id))
}

// stat is what we need to know of a process's status.
type stat struct {
	state   byte
	threads int
	start   uint64
}

// ended reports whether a process has ended, though its parent has not taken
// note yet. One whose first thread has ended and others have not is on its way
// still: the first process of a machine ends all others in its last thread.
func (s stat) ended() bool {
	return (s.state == 'Z' || s.state == 'X') && s.threads <= 1
}

// parseStat reads state, number of threads and start time: fields 3, 20 and
// 22. The second field, the program's name, may hold spaces and parentheses:
// counting starts behind it.
func parseStat(content []byte) (stat, error) {
	end := bytes.LastIndexByte(content, ')')
	fields := strings.Fields(string(content[end+1:]))
	if end < 0 || len(fields) < 20 {
		return stat{}, fmt.Errorf("unexpected process status %q", content)
	}
	threads, err := strconv.Atoi(fields[17])
	if err != nil {
		return stat{}, fmt.Errorf("number of threads in process status %q: %w", content, err)
	}
	start, err := strconv.ParseUint(fields[19], 10, 64)
	if err != nil {
		return stat{}, fmt.Errorf("start time in process status %q: %w", content, err)
	}
	return stat{state: fields[0][0], threads: threads, start: start}, nil
}
