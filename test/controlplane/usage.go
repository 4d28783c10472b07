package controlplane

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// clockTick is the unit of CPU times in /proc: USER_HZ, which is 100 on every
// architecture that Go knows.
const clockTick = 10 * time.Millisecond

// Usage is what a process has used.
type Usage struct {
	// CPU is the time on processors, in user and kernel mode.
	CPU time.Duration
	// Peak is the most memory that was resident at once, in bytes.
	Peak int64
	// At is when it was read.
	At time.Time
}

func usageOf(pid int) (Usage, error) {
	u := Usage{At: time.Now()}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return u, err
	}
	if u.CPU, err = cpuTime(string(stat)); err != nil {
		return u, err
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return u, err
	}
	u.Peak, err = peakMemory(string(status))
	return u, err
}

// cpuTime reads utime and stime of /proc/PID/stat (proc_pid_stat(5), fields 14 and 15).
func cpuTime(stat string) (time.Duration, error) {
	// The name in parentheses may have anything in it.
	_, rest, ok := strings.Cut(stat[max(strings.LastIndexByte(stat, ')'), 0):], ") ")
	fields := strings.Fields(rest)
	const user, system = 14 - 3, 15 - 3
	if !ok || len(fields) <= system {
		return 0, fmt.Errorf("read the CPU time of %q", stat)
	}
	var sum int64
	for _, field := range []string{fields[user], fields[system]} {
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("read the CPU time: %w", err)
		}
		sum += n
	}
	return time.Duration(sum) * clockTick, nil
}

// peakMemory reads VmHWM of /proc/PID/status.
func peakMemory(status string) (int64, error) {
	for line := range strings.Lines(status) {
		if fields := strings.Fields(line); len(fields) == 3 && fields[0] == "VmHWM:" && fields[2] == "kB" {
			n, err := strconv.ParseInt(fields[1], 10, 64)
			return n * 1024, err
		}
	}
	return 0, errors.New("the process tells no VmHWM")
}

// Busiest is the greatest share of a processor between two readings that lie at least a
// window apart, and no more than needed.
func Busiest(all []Usage, window time.Duration) float64 {
	most, first := 0.0, 0
	for last := range all {
		for first+1 < last && all[last].At.Sub(all[first+1].At) >= window {
			first++
		}
		if wall := all[last].At.Sub(all[first].At); wall >= window {
			most = max(most, (all[last].CPU-all[first].CPU).Seconds()/wall.Seconds())
		}
	}
	return most
}
