package amd

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware/amd/sysfs"
	"github.com/tranche-dev/tranche/pkg/sleep"
)

// load reloads the driver, unless ctx has ended.
func (m *memorySwitch) load(ctx context.Context) error {
	m.loading.Lock()
	defer m.loading.Unlock()
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("before amdgpu was reloaded: %w", err)
	}
	return m.driver.cfg.Reload(ctx)
}

// reload reloads the driver, and checks the GPUs afterwards.
func (m *memorySwitch) reload(ctx context.Context) error {
	d := m.driver
	before, err := sysfs.LoadID(m.host)
	if err != nil {
		return err
	}
	start := time.Now()
	failed := m.load(ctx)
	after, err := sysfs.LoadID(m.host.Undoing())
	switch {
	case err != nil && failed == nil:
		return err
	case sysfs.Absent(err):
		return fmt.Errorf("memory mode %s: %w; no amdgpu is loaded, and the AMD GPUs of this machine are of no use until \"modprobe amdgpu\" works or it is rebooted", m.want, failed)
	case err != nil:
		return errors.Join(failed, err)
	case after == before && failed == nil:
		return m.stillAsked(true, errors.New("amdgpu was to be reloaded, and was not"))
	case after == before:
		return m.stillAsked(true, m.explainReload(failed))
	}
	if err := m.awaitBack(ctx); err != nil {
		return errors.Join(failed, err)
	}
	if err := m.readBack(); err != nil {
		return errors.Join(failed, err)
	}
	d.cfg.Logger.Info("Reloaded amdgpu for a memory mode", "mode", m.want, "gpus", len(m.gpus), "took", time.Since(start).Round(time.Millisecond))
	return nil
}

// explainReload names who uses a driver that could not be unloaded.
func (m *memorySwitch) explainReload(err error) error {
	if !errors.Is(err, gpu.ErrInUse) {
		return fmt.Errorf("memory mode %s: %w", m.want, err)
	}
	who, lookErr := sysfs.Users(m.host.Undoing())
	if lookErr != nil || who == "" {
		who = sysfs.UnknownUsers
	}
	return fmt.Errorf("memory mode %s: %w: %s", m.want, err, who)
}

// revive loads a driver that is not loaded, and waits for the GPUs that it had.
func (m *memorySwitch) revive(ctx context.Context) error {
	d := m.driver
	if err := m.load(ctx); err != nil {
		return fmt.Errorf("memory mode %s: no amdgpu is loaded: %w", m.want, err)
	}
	for _, c := range m.gpus {
		known, _ := d.Known(c.PCIAddress)
		c.cut, c.computes = known.MemoryMode != "", true
	}
	return m.awaitBack(ctx)
}

// awaitBack waits until every GPU can be used again: amdgpu drives it, its modes can be read,
// and if it had KFD nodes it has them and their device nodes again. During its reset a GPU
// answers EPERM.
func (m *memorySwitch) awaitBack(ctx context.Context) error {
	deadline := time.Now().Add(m.driver.cfg.ReloadPatience)
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("memory mode %s: amdgpu was reloaded, and then time was up before the GPUs could be looked at: %w", m.want, err)
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
			return fmt.Errorf("memory mode %s: amdgpu was reloaded, and %d of %d GPUs did not come back: %w",
				m.want, len(missing), len(m.gpus), errors.Join(append(missing, ctx.Err())...))
		}
	}
}

// back says why a GPU cannot be used yet.
func (c *memoryGPU) back() error {
	if err := c.CheckBound(); err != nil {
		return err
	}
	if c.cut {
		if _, err := c.MemoryMode(); err != nil {
			return err
		}
		if mode, err := c.ComputeMode(); err != nil {
			return err
		} else if mode == "" {
			return fmt.Errorf("GPU %s: amdgpu has no %s for it", c.PCIAddress, sysfs.ComputeFile)
		}
	}
	if !c.computes {
		return nil
	}
	l, err := c.Look()
	if err != nil {
		return err
	}
	if len(l.Nodes()) == 0 {
		return c.WithoutKFD()
	}
	for _, p := range l.Partitions {
		if p.Node == nil {
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
