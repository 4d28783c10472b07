package amd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/sleep"
)

// load has the driver loaded anew, unless time is up.
func (m *memorySwitch) load(ctx context.Context) error {
	m.loading.Lock()
	defer m.loading.Unlock()
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("before amdgpu was loaded anew: %w", err)
	}
	return m.driver.cfg.Reload(ctx)
}

// reload loads the driver anew, and finds out what has become of the GPUs.
func (m *memorySwitch) reload(ctx context.Context) error {
	d := m.driver
	before, err := m.host.loadID()
	if err != nil {
		return err
	}
	start := time.Now()
	failed := m.load(ctx)
	after, err := m.late().loadID()
	switch {
	case err != nil && failed == nil:
		return err
	case absent(err):
		d.forget()
		return fmt.Errorf("memory mode %s: %w; no amdgpu is loaded, and the AMD GPUs of this machine are of no use until \"modprobe amdgpu\" works or it is rebooted", m.want, failed)
	case err != nil:
		return errors.Join(failed, err)
	case after == before && failed == nil:
		return m.stillAsked(true, errors.New("amdgpu was to be loaded anew, and was not"))
	case after == before:
		return m.stillAsked(true, m.explainReload(failed))
	}
	d.forget()
	if err := m.awaitBack(ctx); err != nil {
		return errors.Join(failed, err)
	}
	if err := m.readBack(); err != nil {
		return errors.Join(failed, err)
	}
	d.cfg.Logger.Info("Loaded amdgpu anew for a memory mode", "mode", m.want, "gpus", len(m.gpus), "took", time.Since(start).Round(time.Millisecond))
	return nil
}

// late is the machine for a look after the caller's time.
func (m *memorySwitch) late() *task { return &task{Task: m.host.Undoing(), files: m.host.files} }

// explainReload names who uses a driver that could not be taken out.
func (m *memorySwitch) explainReload(err error) error {
	if !errors.Is(err, gpu.ErrInUse) {
		return fmt.Errorf("memory mode %s: %w", m.want, err)
	}
	who, lookErr := m.late().users()
	if lookErr != nil || who == "" {
		who = unknownUsers
	}
	return fmt.Errorf("memory mode %s: %w: %s", m.want, err, who)
}

// revive puts in a driver that is not there, and waits for the GPUs that it had.
func (m *memorySwitch) revive(ctx context.Context) error {
	d := m.driver
	if err := m.load(ctx); err != nil {
		return fmt.Errorf("memory mode %s: no amdgpu is loaded: %w", m.want, err)
	}
	d.forget()
	for _, c := range m.gpus {
		d.mu.Lock()
		c.cut, c.computes = d.known[c.pciAddress].MemoryMode != "", true
		d.mu.Unlock()
	}
	return m.awaitBack(ctx)
}

// forget throws away what belongs to the load of the driver that is over.
func (d *Driver) forget() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.topology, d.hostBusy = nil, ""
	d.shapes, d.configs, d.places = map[string]*shape{}, map[string]configs{}, map[int]string{}
}

const (
	// refcntFile counts who keeps the module in the kernel: opened device nodes and
	// other modules.
	refcntFile = moduleDir + "/refcnt"
	holdersDir = moduleDir + "/holders"
)

// unknownUsers is said of users that neither KFD nor the kernel's modules name.
const unknownUsers = "who does is not to be seen: look with lsof /dev/kfd /dev/dri/* on the node, end them, and this is tried again"

// users says who keeps the driver from being taken out; empty if nobody does.
func (t *task) users() (string, error) {
	count, err := t.optional(refcntFile)
	if err != nil {
		return "", err
	}
	all, err := t.kfdUsers()
	if err != nil {
		return "", err
	}
	holders, err := t.list(holdersDir)
	if err != nil && !absent(err) {
		return "", err
	}
	var who []string
	if len(all) > 0 {
		who = append(who, fmt.Sprintf("%s %s KFD", names(all), use(all)))
	}
	for _, name := range holders {
		who = append(who, fmt.Sprintf("the kernel module %s uses it", name))
	}
	if len(who) == 0 && count != "" && count != "0" {
		who = t.nodeUsers()
	}
	switch {
	case len(who) > 0:
		return strings.Join(who, " and ") + "; once they have ended or moved this is tried again", nil
	case count != "" && count != "0":
		return "its count of users is " + count + "; " + unknownUsers, nil
	}
	return "", nil
}

// nodeUsers are the processes that have one of amdgpu's device nodes open, for
// display or video. It is a search through all open files of the host, for which
// everything that cannot be read is nobody's.
func (t *task) nodeUsers() []string {
	nodes := t.deviceNumbers()
	pids, _ := t.list("/proc")
	var all []process
	for _, name := range pids {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		dir := path.Join("/proc", name, "fd")
		files, _ := t.list(dir)
		for _, file := range files {
			info, err := t.stat(path.Join(dir, file))
			if err == nil && info.Mode&fs.ModeCharDevice != 0 && nodes[[2]uint32{info.Major, info.Minor}] {
				p := process{pid: pid}
				p.name, _ = t.read(path.Join("/proc", name, "comm"))
				all = append(all, p)
				break
			}
		}
	}
	if len(all) == 0 {
		return nil
	}
	slices.SortFunc(all, func(a, b process) int { return a.pid - b.pid })
	return []string{fmt.Sprintf("%s %s its device nodes open", names(all), have(all))}
}

func have(all []process) string {
	if len(all) == 1 {
		return "has"
	}
	return "have"
}

// deviceNumbers are those of amdgpu's device nodes: KFD's, and the DRM nodes of the
// GPUs and of the partition devices.
func (t *task) deviceNumbers() map[[2]uint32]bool {
	numbers := map[[2]uint32]bool{}
	note := func(name string) {
		if info, err := t.stat(name); err == nil && info.Mode&fs.ModeCharDevice != 0 {
			numbers[[2]uint32{info.Major, info.Minor}] = true
		}
	}
	note(kfdDevice)
	places := []string{}
	gpus, _ := t.list(driverDirs[0])
	for _, name := range gpus {
		places = append(places, path.Join(devicesDir, name))
	}
	partitions, _ := t.list(platformDir)
	for _, name := range partitions {
		if strings.HasPrefix(name, "amdgpu_xcp") {
			places = append(places, path.Join(platformDir, name))
		}
	}
	for _, place := range places {
		nodes, _ := t.list(path.Join(place, "drm"))
		for _, node := range nodes {
			note(path.Join(renderDir, node))
		}
	}
	return numbers
}

// kfdUsers are the processes that use KFD on any GPU.
func (t *task) kfdUsers() ([]process, error) {
	pids, err := t.list(processDir)
	if absent(err) {
		return nil, nil
	}
	var all []process
	for _, name := range pids {
		if pid, err := strconv.Atoi(name); err == nil {
			p := process{pid: pid}
			p.name, _ = t.read(path.Join("/proc", name, "comm"))
			all = append(all, p)
		}
	}
	slices.SortFunc(all, func(a, b process) int { return a.pid - b.pid })
	return all, err
}

// awaitBack waits until every GPU that was there can be used again: amdgpu drives
// it, its modes can be read, and where it had a node in KFD's topology it has one, with
// its device nodes. A GPU that is reset by the load answers EPERM meanwhile.
func (m *memorySwitch) awaitBack(ctx context.Context) error {
	deadline := time.Now().Add(m.driver.cfg.ReloadPatience)
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("memory mode %s: amdgpu was loaded anew, and then time was up before the GPUs could be looked at: %w", m.want, err)
	}
	for {
		var missing []error
		for _, c := range m.gpus {
			m.at.Store(c)
			if err := c.back(); err != nil {
				missing = append(missing, err)
			}
		}
		if len(missing) == 0 {
			return nil
		}
		if time.Now().Add(backPause).After(deadline) || sleep.For(ctx, backPause) != nil {
			return fmt.Errorf("memory mode %s: amdgpu was loaded anew, and %d of %d GPUs did not come back: %w",
				m.want, len(missing), len(m.gpus), errors.Join(append(missing, ctx.Err())...))
		}
	}
}

// back says why a GPU cannot be used yet.
func (c *memoryGPU) back() error {
	if err := c.bound(); err != nil {
		return err
	}
	if c.cut {
		if _, err := c.memoryMode(); err != nil {
			return err
		}
		if mode, err := c.mode(); err != nil {
			return err
		} else if mode == "" {
			return fmt.Errorf("GPU %s: amdgpu has no %s for it", c.pciAddress, computeFile)
		}
	}
	if !c.computes {
		return nil
	}
	l, err := c.look()
	if err != nil {
		return err
	}
	if len(l.nodes()) == 0 {
		return c.withoutKFD()
	}
	for _, p := range l.partitions {
		if p.node == nil {
			continue // fenced by Obstacles
		}
		if missing, err := c.missingDevice(p); err != nil {
			return err
		} else if missing != nil {
			return missing
		}
	}
	return nil
}
