package share

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware"
	"github.com/tranche-dev/tranche/pkg/node/inventory"
)

// Works reports whether the kernel driver limits the memory of pods on a GPU: nil, or why it does not.
// It tries that with the plugin's own pod, by a limit of all of the memory, until it works.
func (l *Limiter) Works(ctx context.Context, g *gpu.GPU) error {
	loadID := l.LoadID(g.PCIAddress)
	l.mu.Lock()
	last, tried := l.trials[g.PCIAddress]
	l.mu.Unlock()
	if tried && last.loadID == loadID && (last.err == nil || time.Now().Before(last.again)) {
		return last.err
	}
	err := l.try(ctx, g)
	if ctx.Err() != nil {
		return err // the plugin is stopping
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.trials[g.PCIAddress] = trial{loadID, err, time.Now().Add(trialInterval)}
	return err
}

func (l *Limiter) try(ctx context.Context, g *gpu.GPU) error {
	ctx, cancel := context.WithTimeout(ctx, limitTimeout)
	defer cancel()
	driver, err := l.Driver(g.PCIAddress)
	switch {
	case err != nil:
		return err
	case g.UntestedLimits && !l.Untested:
		return fmt.Errorf("the chart's value amd.shareLimits.enabled is false, so nothing limits the memory of shares of GPU %s", g.Name())
	case l.NoHook != nil:
		return l.NoHook
	case g.Memory == 0:
		return fmt.Errorf("GPU %s does not report its memory", g.Name())
	}
	// What most drivers answer, before the control groups are read.
	if _, err := driver.MemoryLimit(ctx, g.PCIAddress, l.Groups); errors.Is(err, gpu.ErrNotSupported) {
		return err
	}
	groups, err := inventory.PodGroups(l.Groups)
	if err != nil {
		return err
	}
	own := groups[l.OwnPod]
	if own == "" {
		return fmt.Errorf("the control group of the plugin's own pod (UID %q) is not in %s: is cgroup v2 mounted there?", l.OwnPod, l.Groups)
	}
	if _, err := setLimit(ctx, driver, g.PCIAddress, own, gpu.MemoryLimit{Bytes: g.Memory}); err != nil {
		return err
	}
	return driver.SetMemoryLimit(ctx, g.PCIAddress, own, gpu.MemoryLimit{})
}

// setLimit sets the limit of a control group, and returns what the driver has made of it.
func setLimit(ctx context.Context, driver hardware.Driver, pciAddress, group string, want gpu.MemoryLimit) (now gpu.MemoryLimit, err error) {
	if err := driver.SetMemoryLimit(ctx, pciAddress, group, want); err != nil {
		return now, err
	}
	switch now, err = driver.MemoryLimit(ctx, pciAddress, group); {
	case err != nil:
		return now, err
	case now.Bytes == 0 || now.Bytes > want.Bytes+limitRounding:
		reported := "no limit"
		if now.Bytes > 0 {
			reported = fmt.Sprintf("a limit of %d MiB", now.Bytes/gpu.MiB)
		}
		return now, fmt.Errorf("GPU %s: the memory of control group %s was limited to %d MiB, and the driver reports %s: does the group use %d MiB already?",
			gpu.NameOf(pciAddress), group, want.Bytes/gpu.MiB, reported, now.Used/gpu.MiB)
	case now.Guaranteed < want.Guaranteed-limitRounding:
		return now, fmt.Errorf("GPU %s: control group %s was guaranteed %d MiB of memory, and the driver reports %d MiB",
			gpu.NameOf(pciAddress), group, want.Guaranteed/gpu.MiB, now.Guaranteed/gpu.MiB)
	}
	return now, nil
}

// WhyNot says why the kernel driver does not limit the memory of pods, by the last trials, of the first
// such GPU; empty if it does on all, or none was tried.
func (l *Limiter) WhyNot() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, address := range slices.Sorted(maps.Keys(l.trials)) {
		if err := l.trials[address].err; err != nil {
			return err.Error()
		}
	}
	return ""
}
