package amd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware/amd/amdgpu"
	"github.com/tranche-dev/tranche/pkg/hardware/amd/sysfs"
	"github.com/tranche-dev/tranche/pkg/hardware/xcp"
	"github.com/tranche-dev/tranche/pkg/sleep"
)

const (
	// reloadPatience is how long GPUs may take to come up when Config does not say.
	// A load under another memory mode resets them all, one after the other: up to
	// minutes for eight.
	reloadPatience = 3 * time.Minute
	// endPatience is how long calls may take to end after the caller's time.
	endPatience = 2 * time.Second
	// backPause is the time between two looks whether they are.
	backPause = 250 * time.Millisecond
)

// SetMemoryPartition puts all of the machine's AMD GPUs that can be cut into a memory
// mode: it asks amdgpu for it, has Config.Reload take the driver out and put it in
// again, waits until every GPU is back, and reads the mode back. If all are in the
// mode, nothing is done. The caller keeps everybody else from the GPUs; those who
// come all the same are told at once.
//
//   - A mode that some GPU does not have is gpu.ErrNotSupported, and a driver in use,
//     after Config.BusyPatience, gpu.ErrInUse, named. A GPU that is gone or in reset is
//     a *HealthError. Then nothing was touched, or the error says what still is asked
//     for.
//   - A GPU that came up in another mode is gpu.ErrModeLost, one that did not come
//     back an error that names it.
//   - Once the driver is out it is put in again whenever ctx ends: Config.Reload sees
//     to it, and SetMemoryPartition returns no earlier.
//
// Afterwards the GPUs have the addresses that they had, and are in the compute mode
// that amdgpu chooses with the memory mode; LoadID is another one, and so are, maybe,
// render nodes and partitions' numbers. The Driver is the same: it has forgotten what it
// knew, so ask it again, Inventory first, whose placements are those of the memory mode.
func (d *Driver) SetMemoryPartition(ctx context.Context, mode string) error {
	want, err := parseMode("memory", mode, xcp.ParseMemoryModes)
	if err != nil {
		return err
	}
	deadline := d.patience(ctx)
	for pause := firstRetry; ; pause = min(2*pause, lastRetry) {
		err := d.tryMemoryMode(ctx, want)
		if !errors.Is(err, gpu.ErrInUse) || time.Now().Add(pause).After(deadline) || sleep.For(ctx, pause) != nil {
			return err
		}
	}
}

// tryMemoryMode does it if nobody uses the driver.
func (d *Driver) tryMemoryMode(ctx context.Context, want xcp.MemoryMode) error {
	m, err := d.closeAll(ctx, want)
	if err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() {
		err := m.run(ctx)
		m.reopen()
		done <- err
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	// A load that has begun is waited for, and none begins any more.
	m.loading.Lock()
	defer m.loading.Unlock()
	select {
	case err := <-done:
		return err
	case <-time.After(endPatience):
		return m.stuck(ctx.Err())
	}
}

// run does it. A call to a file may hang: then it is left behind, and the gates stay
// closed until it returns.
func (m *memorySwitch) run(ctx context.Context) error {
	if m.out {
		if err := m.revive(ctx); err != nil {
			return err
		}
	}
	if err := m.find(); err != nil || len(m.others()) == 0 {
		return err
	}
	if m.driver.cfg.Reload == nil {
		return fmt.Errorf("memory mode %s: %w: the plugin may not load amdgpu anew; amd.memoryModes=true in the chart's values lets it", m.want, gpu.ErrNotSupported)
	}
	// The kernel's answer counts when the driver is taken out; this only keeps a
	// request from being left behind.
	if who, err := amdgpu.Users(m.host); err != nil {
		return err
	} else if who != "" {
		return fmt.Errorf("memory mode %s: amdgpu cannot be loaded anew while it is %w: %s", m.want, gpu.ErrInUse, who)
	}
	if err := m.request(); err != nil {
		return err
	}
	return m.reload(ctx)
}

// memorySwitch is one change of the memory mode. Nobody else is at the GPUs.
type memorySwitch struct {
	driver *Driver
	want   xcp.MemoryMode
	host   *sysfs.Task
	// out tells that there is no driver: one that was taken out could not be put in.
	out bool
	// gpus are all that amdgpu drives, by address.
	gpus []*memoryGPU
	// opens are what lets others to the GPUs again.
	opens []func()
	// loading is held while the driver is out.
	loading sync.Mutex
	// at is the GPU that is asked.
	at atomic.Pointer[memoryGPU]
}

// stuck names the call that does not return.
func (m *memorySwitch) stuck(cause error) error {
	t := m.host
	if c := m.at.Load(); c != nil {
		t = c.Task
	}
	return fmt.Errorf("memory mode %s: %w", m.want, t.Stuck(cause))
}

// memoryGPU is a GPU of it.
type memoryGPU struct {
	*gpuHandle
	// cut tells that the GPU has modes, and now which memory mode.
	cut bool
	now xcp.MemoryMode
	// computes tells that KFD has nodes of it, and hive with which GPUs it is joined.
	computes bool
	hive     uint64
}

// closeAll closes the gates of the machine and of all its GPUs.
func (d *Driver) closeAll(ctx context.Context, want xcp.MemoryMode) (*memorySwitch, error) {
	m := &memorySwitch{driver: d, want: want}
	addresses, err := d.machine.WithLost(ctx)
	if known := d.machine.KnownAddresses(); sysfs.Absent(err) && d.cfg.Reload != nil && len(known) > 0 {
		addresses, err, m.out = known, nil, true
	}
	if err != nil {
		return nil, fmt.Errorf("memory mode %s: %w", want, err)
	}
	why := fmt.Sprintf("amdgpu is being loaded anew for memory mode %s", want)
	held, reopen, err := d.machine.Hold(ctx, why)
	if err != nil {
		return nil, err
	}
	m.host = held
	m.opens = append(m.opens, reopen)
	for _, address := range addresses {
		held, reopen, err := d.machine.HoldGPU(ctx, address, why)
		if err != nil {
			m.reopen()
			return nil, err
		}
		m.opens = append(m.opens, reopen)
		m.gpus = append(m.gpus, &memoryGPU{gpuHandle: &gpuHandle{GPU: held, driver: d}})
	}
	return m, nil
}

func (m *memorySwitch) reopen() {
	for _, f := range slices.Backward(m.opens) {
		f()
	}
}

// find looks how the GPUs are set, and refuses what cannot be.
func (m *memorySwitch) find() error {
	for _, c := range m.gpus {
		m.at.Store(c)
		if err := c.CheckBound(); err != nil {
			return err
		}
		l, err := c.Look()
		if err != nil {
			return err
		}
		if nodes := l.Nodes(); len(nodes) > 0 {
			c.computes, c.hive = true, nodes[0].Hive
		}
		if c.cut = l.Mode != ""; !c.cut {
			continue
		}
		if c.now, err = c.MemoryMode(); err != nil {
			return err
		}
		offer, err := c.MemoryModes(c.now)
		if err != nil {
			return err
		}
		if !slices.Contains(offer, m.want) {
			return fmt.Errorf("GPU %s cannot be put into memory mode %s: %w: it has %s", c.PCIAddress, m.want, gpu.ErrNotSupported, strings.Join(amdgpu.Texts(offer), ", "))
		}
	}
	if !slices.ContainsFunc(m.gpus, func(c *memoryGPU) bool { return c.cut }) {
		return fmt.Errorf("memory mode %s: %w: no AMD GPU of this machine has modes", m.want, gpu.ErrNotSupported)
	}
	return nil
}

// others are the GPUs that are in another mode.
func (m *memorySwitch) others() []*memoryGPU {
	var others []*memoryGPU
	for _, c := range m.gpus {
		if c.cut && c.now != m.want {
			others = append(others, c)
		}
	}
	return others
}

// request asks amdgpu for the mode. GPUs that are joined have one mode: what is
// asked of one is asked of all (current_memory_partition_store in Linux'
// amdgpu_gmc.c), so it is enough that one of them takes it.
func (m *memorySwitch) request() error {
	asked := map[string]bool{}
	failed := map[string]error{}
	for _, c := range m.others() {
		m.at.Store(c)
		group := c.group()
		err := c.Write(c.File(sysfs.MemoryFile), string(m.want))
		switch {
		case err == nil:
			asked[group] = true
		case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES), errors.Is(err, unix.EROFS), sysfs.Absent(err), errors.Is(err, unix.ENODEV):
			return m.stillAsked(len(asked) > 0, c.explainWrite("", err))
		default:
			failed[group] = errors.Join(failed[group], err)
		}
	}
	for group, err := range failed {
		if !asked[group] {
			return m.stillAsked(len(asked) > 0, fmt.Errorf("amdgpu refuses memory mode %s: %w", m.want, err))
		}
		m.driver.cfg.Logger.V(1).Info("GPUs that are joined with others did not take the memory mode that those took", "mode", m.want, "reason", err.Error())
	}
	return nil
}

// group names the GPUs whose memory mode is one.
func (c *memoryGPU) group() string {
	if c.hive == 0 {
		return c.PCIAddress
	}
	return fmt.Sprintf("hive %#x", c.hive)
}

// stillAsked says that amdgpu keeps what was asked of it: it takes no request for the
// mode that a GPU is in, so none can be taken back.
func (m *memorySwitch) stillAsked(asked bool, err error) error {
	if !asked {
		return err
	}
	return fmt.Errorf("%w; memory mode %s stays asked for and comes with the next load of amdgpu, whoever loads it, unless another is asked for before", err, m.want)
}

// readBack checks that every GPU is in the mode.
func (m *memorySwitch) readBack() error {
	var lost []string
	for _, c := range m.gpus {
		if !c.cut {
			continue
		}
		m.at.Store(c)
		got, err := c.MemoryMode()
		if err != nil {
			return err
		}
		if got != m.want {
			lost = append(lost, fmt.Sprintf("GPU %s is in %s", c.PCIAddress, got))
		}
	}
	if len(lost) == 0 {
		return nil
	}
	return fmt.Errorf("memory mode %s was asked for, but %w: %s; look for \"NPS mode change request\" in dmesg, and if it is lost again, reboot the node and ask again",
		m.want, gpu.ErrModeLost, strings.Join(lost, ", "))
}
