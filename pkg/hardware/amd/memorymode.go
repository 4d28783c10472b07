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
	"github.com/tranche-dev/tranche/pkg/hardware/amd/sysfs"
	"github.com/tranche-dev/tranche/pkg/hardware/xcp"
	"github.com/tranche-dev/tranche/pkg/lists"
	"github.com/tranche-dev/tranche/pkg/sleep"
)

const (
	// reloadPatience is how long GPUs may take to come up when Config does not say.
	// A load with another memory mode resets them one after the other, which takes minutes
	// for eight.
	reloadPatience = 3 * time.Minute
	// endPatience is how long calls may take to end after the caller's time.
	endPatience = 2 * time.Second
	// backPause is the time between two checks whether the GPUs are back.
	backPause = 250 * time.Millisecond
)

// SetMemoryPartition puts all AMD GPUs of the machine that can be partitioned into a memory
// mode: it requests the mode from amdgpu, reloads the driver with Config.Reload, waits until
// every GPU is back, and reads the mode back. If all are in the mode already, nothing is
// done. The caller must keep others from using the GPUs; their calls fail at once.
//
//   - gpu.ErrNotSupported: a GPU does not have the mode. gpu.ErrInUse: the driver was in
//     use for Config.BusyPatience; the error names the users. *HealthError: a GPU is gone or
//     in reset. Nothing was changed then, or the error says which request is pending.
//   - gpu.ErrModeLost: a GPU came up in another mode. A GPU that did not come back is named.
//   - Once the driver is unloaded it is loaded again even if ctx ends, and
//     SetMemoryPartition does not return before.
//
// Afterwards the GPUs have the same addresses and are in the compute mode that amdgpu chooses
// for the memory mode. LoadID has changed; render nodes and numbers of partitions may have.
// Call Inventory first: its placements are those of the new memory mode.
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

// tryMemoryMode changes the memory mode if nobody uses the driver.
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
	// Wait for a load that has begun, and let none begin.
	m.loading.Lock()
	defer m.loading.Unlock()
	select {
	case err := <-done:
		return err
	case <-time.After(endPatience):
		return m.stuck(ctx.Err())
	}
}

// run changes the mode. If a call to a file hangs, run is left behind, and the gates stay
// closed until that returns.
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
		return fmt.Errorf("memory mode %s: %w: the plugin may not reload amdgpu; amd.memoryPartitions.enabled=true in the chart's values lets it", m.want, gpu.ErrNotSupported)
	}
	// The kernel decides when the driver is unloaded; this check only avoids a request
	// that would stay pending.
	if who, err := sysfs.Users(m.host); err != nil {
		return err
	} else if who != "" {
		return fmt.Errorf("memory mode %s: amdgpu cannot be reloaded while it is %w: %s", m.want, gpu.ErrInUse, who)
	}
	if err := m.request(); err != nil {
		return err
	}
	return m.reload(ctx)
}

// memorySwitch is one change of the memory mode. It holds the gates of all GPUs.
type memorySwitch struct {
	driver *Driver
	want   xcp.MemoryMode
	host   *sysfs.Task
	// out: the driver is not loaded: an earlier load failed.
	out bool
	// gpus are all that amdgpu drives, by address.
	gpus []*memoryGPU
	// opens open the gates again.
	opens []func()
	// loading is held while the driver is out.
	loading sync.Mutex
	// at is the GPU whose files are used now.
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

type memoryGPU struct {
	*gpuHandle
	// cut: the GPU has modes; now is its memory mode.
	cut bool
	now xcp.MemoryMode
	// computes: KFD has nodes for it; hive is its XGMI hive.
	computes bool
	hive     uint64
}

// closeAll closes the gates of the machine and of all its GPUs.
func (d *Driver) closeAll(ctx context.Context, want xcp.MemoryMode) (*memorySwitch, error) {
	m := &memorySwitch{driver: d, want: want}
	addresses, err := d.WithLost(ctx)
	if known := d.KnownAddresses(); sysfs.Absent(err) && d.cfg.Reload != nil && len(known) > 0 {
		addresses, err, m.out = known, nil, true
	}
	if err != nil {
		return nil, fmt.Errorf("memory mode %s: %w", want, err)
	}
	why := fmt.Sprintf("amdgpu is being reloaded for memory mode %s", want)
	held, reopen, err := d.Hold(ctx, why)
	if err != nil {
		return nil, err
	}
	m.host = held
	m.opens = append(m.opens, reopen)
	for _, address := range addresses {
		held, reopen, err := d.HoldGPU(ctx, address, why)
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

// find reads the modes of the GPUs, and fails if one does not have the mode.
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
			return fmt.Errorf("GPU %s cannot be put into memory mode %s: %w: it has %s", c.PCIAddress, m.want, gpu.ErrNotSupported, strings.Join(sysfs.Texts(offer), ", "))
		}
	}
	if !slices.ContainsFunc(m.gpus, func(c *memoryGPU) bool { return c.cut }) {
		return fmt.Errorf("memory mode %s: %w: no AMD GPU of this machine has modes", m.want, gpu.ErrNotSupported)
	}
	return nil
}

// others are the GPUs that are in another mode.
func (m *memorySwitch) others() []*memoryGPU {
	return lists.Filter(m.gpus, func(c *memoryGPU) bool { return c.cut && c.now != m.want })
}

// request asks amdgpu for the mode. GPUs of one XGMI hive share the mode: amdgpu passes a
// request to all of them (current_memory_partition_store in Linux' amdgpu_gmc.c), so it is
// enough that one of them accepts it.
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

// stillAsked says that the request stays pending in amdgpu. It cannot be withdrawn: amdgpu
// accepts no request for the mode that a GPU is in.
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
