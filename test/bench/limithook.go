package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tranche-dev/tranche/pkg/claim/ledger"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware"
	"github.com/tranche-dev/tranche/pkg/hook"
	"github.com/tranche-dev/tranche/pkg/share"
	"github.com/tranche-dev/tranche/test/figures"
)

const (
	// hookStarts are the measured starts of containers.
	hookStarts = 100
	// claimsBeside are on the node beside the one whose container starts.
	claimsBeside = 56
	hookPod      = "3f0f0d6e-52f4-4c4b-9a0e-6d3b0f2f0a11"
)

// limitHookFigures: what the start of a container waits for where the kernel driver limits memory.
func (b *bench) limitHookFigures() []figures.Figure {
	return []figures.Figure{{
		Name:    "time that limiting the memory of a share adds to a container's start",
		Limit:   figures.AtMost(30, "ms"),
		Measure: b.timeLimitHook,
	}}
}

// timeLimitHook runs the hook's program as the container runtime does, for a process with a control group of
// its own, against the plugin's part that sets limits. The driver answers at once.
func (b *bench) timeLimitHook(ctx context.Context) (figures.Reading, error) {
	if os.Geteuid() != 0 {
		return figures.Reading{}, errors.New("only root can make a control group for the container")
	}
	root, err := groupsRoot()
	if err != nil {
		return figures.Reading{}, err
	}
	pid, end, err := startInGroup(ctx, filepath.Join(root, "bench", "pod"+hookPod, "container"))
	if err != nil {
		return figures.Reading{}, err
	}
	defer end()
	dir, err := os.MkdirTemp(b.dir, "hook")
	if err != nil {
		return figures.Reading{}, err
	}
	driver := &answering{limits: map[string]gpu.MemoryLimit{}}
	records, device := sharesOfANode()
	limiter := share.NewLimiter(share.LimiterConfig{
		Driver: func(string) (hardware.Driver, error) { return driver, nil }, LoadID: func(string) string { return "load" },
		Records: func(context.Context) []ledger.Record { return records }, Groups: root,
	})
	stop, err := serveLimits(ctx, hook.Socket(dir, "bench"), limiter)
	if err != nil {
		return figures.Reading{}, err
	}
	defer stop()
	var times []time.Duration
	for range hookStarts + 1 {
		clear(driver.limits)
		command := exec.CommandContext(ctx, b.limitHook, hook.Args(dir, "claim-0", device)[1:]...) //nolint:gosec // the program to measure
		command.Stdin = strings.NewReader(fmt.Sprintf(`{"pid":%d}`, pid))
		start := time.Now()
		out, err := command.CombinedOutput()
		times = append(times, time.Since(start))
		switch {
		case err != nil:
			return figures.Reading{}, fmt.Errorf("%s: %w: %s", b.limitHook, err, bytes.TrimSpace(out))
		case len(driver.limits) != 1:
			return figures.Reading{}, fmt.Errorf("%d control groups were limited, not one", len(driver.limits))
		}
	}
	times = times[1:] // the first reads the program from disk
	slices.Sort(times)
	ms := func(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
	return figures.Reading{
		Value: ms(times[len(times)*9/10]),
		Seen:  fmt.Sprintf("nine of ten starts; half take %.2f ms", ms(times[len(times)/2])),
	}, nil
}

// groupsRoot is where cgroup v2 is mounted.
func groupsRoot() (string, error) {
	mounts, err := os.ReadFile("/proc/mounts")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(mounts)) {
		if fields := strings.Fields(line); len(fields) > 2 && fields[2] == "cgroup2" {
			return fields[1], nil
		}
	}
	return "", errors.New("cgroup v2 is not mounted")
}

// startInGroup starts a process in a new control group, and returns what ends it and removes the group.
func startInGroup(ctx context.Context, group string) (pid int, end func(), err error) {
	remove := func() { // the kernel removes a group a moment after its last process has ended
		for range 100 {
			if os.Remove(group) == nil {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		_, _ = os.Remove(filepath.Dir(group)), os.Remove(filepath.Dir(filepath.Dir(group)))
	}
	if err := os.MkdirAll(group, 0o755); err != nil {
		return 0, nil, err
	}
	folder, err := os.Open(group)
	if err != nil {
		remove()
		return 0, nil, err
	}
	defer folder.Close()
	process := exec.CommandContext(ctx, "sleep", "3600")
	process.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(folder.Fd()), Pdeathsig: syscall.SIGKILL}
	if err := process.Start(); err != nil {
		remove()
		return 0, nil, fmt.Errorf("start a process in control group %s: %w", group, err)
	}
	return process.Process.Pid, func() {
		_, _ = process.Process.Kill(), process.Wait()
		remove()
	}, nil
}

// sharesOfANode are claims with a share each, and the key of the first's device.
func sharesOfANode() (records []ledger.Record, device string) {
	for n := range claimsBeside + 1 {
		p := gpu.ShareOf(gpu.Placement{GPU: fmt.Sprintf("0000:%02x:00.0", n%8+1), Type: gpu.TypeGPU, Memory: 80 << 30}, gpu.ByMemory,
			gpu.Sharing{Strategy: gpu.TimeSlicing, KernelLimits: true})
		d := ledger.Device{Name: p.Name(), Placement: p, ShareID: types.UID(fmt.Sprintf("%08d", n)), Amount: &gpu.Amount{Memory: 2 << 30}}
		pod := types.UID(hookPod)
		if n == 0 {
			device = d.Key()
		} else {
			pod = types.UID(fmt.Sprintf("3f0f0d6e-52f4-4c4b-9a0e-%012d", n))
		}
		records = append(records, ledger.Record{
			Claim: ledger.ClaimRef{UID: types.UID(fmt.Sprintf("claim-%d", n)), Namespace: "team", Name: fmt.Sprint(n)}, State: ledger.Prepared,
			Pods: []ledger.Pod{{Name: fmt.Sprint(n), UID: pod}}, Devices: []ledger.Device{d},
		})
	}
	return records, device
}

// serveLimits answers the hook as the plugin does.
func serveLimits(ctx context.Context, socket string, limiter *share.Limiter) (stop func(), err error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "unix", socket)
	if err != nil {
		return nil, err
	}
	server := &http.Server{ReadHeaderTimeout: time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		request, err := hook.ParseRequest(r.Body)
		if err == nil {
			err = limiter.Limit(r.Context(), request)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusConflict)
		}
	})}
	go func() { _ = server.Serve(listener) }()
	return func() { _ = server.Close() }, nil
}

// answering is a driver that limits memory at once. The hook's calls come one after the other.
type answering struct {
	hardware.Driver
	limits map[string]gpu.MemoryLimit
}

func (a *answering) SetMemoryLimit(_ context.Context, _, group string, limit gpu.MemoryLimit) error {
	a.limits[group] = limit
	return nil
}

func (a *answering) MemoryLimit(_ context.Context, _, group string) (gpu.MemoryLimit, error) {
	return a.limits[group], nil
}
