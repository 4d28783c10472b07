package node

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware/amd"
	"github.com/tranche-dev/tranche/pkg/hardware/nvidia"
	"github.com/tranche-dev/tranche/pkg/hardware/simulate"
	"github.com/tranche-dev/tranche/pkg/hardware/simulate/amdgpu"
	"github.com/tranche-dev/tranche/pkg/hardware/simulate/inventory"
)

// errNoHardware says that the node has no card that we could serve, or no
// driver for it yet.
var errNoHardware = errors.New("no GPU driver on this node")

// opener opens the driver of one vendor.
type opener struct {
	name gpu.Vendor
	// open fails with errNoHardware when there is no driver yet. A driver that is
	// loaded and cannot be used comes back beside the error.
	open func(context.Context) (*opened, error)
}

// vendors are those that the node may have cards of.
func (c *Config) vendors(ctx context.Context) ([]opener, error) {
	if name := c.inventory(); name != "" {
		return c.simulated(ctx, name)
	}
	return []opener{{gpu.NVIDIA, c.openNVIDIA}, {gpu.AMD, c.openAMD}}, nil
}

// openMissing opens the drivers that are not open yet. It returns those that
// now are, and why the others are not, by vendor.
func (h *hardware) openMissing(ctx context.Context, openers []opener) (added []*opened, failed map[gpu.Vendor]error) {
	failed = map[gpu.Vendor]error{}
	for _, vendor := range openers {
		if h.has(vendor.name) {
			continue
		}
		o, err := vendor.open(ctx)
		if o != nil {
			o.name, o.err = vendor.name, err
			h.add(o)
		}
		if err != nil {
			failed[vendor.name] = err
			continue
		}
		added = append(added, o)
	}
	return added, failed
}

// openHardware finds the cards of the node. The drivers that it does not find
// are looked for again from time to time, as long as the plugin runs.
func (p *plugin) openHardware(ctx context.Context) (*hardware, error) {
	openers, err := p.vendors(ctx)
	if err != nil {
		return nil, err
	}
	h := &hardware{}
	added, failed := h.openMissing(ctx, openers)
	if len(added) > 0 {
		p.openers = openers
		p.tellFailures(ctx, failed)
		return h, nil
	}
	var none []error
	for _, o := range openers {
		err := failed[o.name]
		if !errors.Is(err, errNoHardware) {
			return nil, err
		}
		none = append(none, err)
	}
	return nil, errors.Join(none...)
}

// tellFailures says once why the driver of a vendor is not used, beside that of
// another one, which is.
func (p *plugin) tellFailures(ctx context.Context, failed map[gpu.Vendor]error) {
	told := map[gpu.Vendor]string{}
	for vendor, err := range failed {
		told[vendor] = err.Error()
		switch {
		case p.toldFailures[vendor] == told[vendor]:
		case errors.Is(err, errNoHardware):
			klog.FromContext(ctx).V(2).Info("No cards of this vendor; looking again from time to time", "vendor", vendor, "reason", told[vendor], "every", p.idleInterval())
		default:
			p.events.warn(ctx, "HardwareUnusable", fmt.Sprintf("Tranche cannot use the %s GPUs of this node, and tries again: %v", vendor.Title(), err))
		}
	}
	p.toldFailures = told
}

// watchVendors watches the health of all cards until ctx ends, and looks from
// time to time for drivers that were installed, or loaded, after the plugin has
// started. Their cards then join the others; what the plugin does for those goes
// on undisturbed.
func (p *plugin) watchVendors(ctx context.Context) {
	var watches sync.WaitGroup
	defer watches.Wait()
	for _, o := range p.hardware.all() {
		watches.Go(func() { p.watchHealth(ctx, o) })
	}
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		added, failed := p.hardware.openMissing(ctx, p.openers)
		p.tellFailures(ctx, failed)
		for _, o := range added {
			p.events.note(ctx, "DriverFound", fmt.Sprintf("The driver of this node's %s GPUs is there now; Tranche gives them out", o.name.Title()))
			watches.Go(func() { p.watchHealth(ctx, o) })
		}
		if len(added) > 0 {
			p.hardware.learn(p.claims.Ledger.List())
		}
	}, p.idleInterval())
}

func (c *Config) openNVIDIA(ctx context.Context) (*opened, error) {
	root, library, err := nvidia.FindDriverRoot(c.HostRoot, c.NVIDIADriverRoot)
	if err != nil {
		return nil, errors.Join(errNoHardware, err)
	}
	devRoot := nvidia.FindDevRoot(c.HostRoot, root)
	return c.useNVIDIA(ctx, nvidia.Config{
		NVML:           nvml.New(nvml.WithLibraryPath(library)),
		DriverRoot:     filepath.Join(c.HostRoot, root),
		HostDriverRoot: root,
		DevRoot:        filepath.Join(c.HostRoot, devRoot),
		HostDevRoot:    devRoot,
	})
}

// useNVIDIA opens an NVIDIA driver, real or simulated.
func (c *Config) useNVIDIA(ctx context.Context, config nvidia.Config) (*opened, error) {
	config.Logger = klog.FromContext(ctx)
	config.CDIHookPath = c.hookPath()
	driver, err := nvidia.New(config)
	if err != nil {
		return nil, err
	}
	loadID, err := driver.LoadID()
	if err != nil {
		return nil, errors.Join(errNoHardware, err)
	}
	if err := driver.Open(ctx); err != nil {
		return &opened{loadID: loadID}, errors.Join(errNoHardware, err)
	}
	if err := c.installHook(); err != nil {
		return &opened{loadID: loadID}, errors.Join(err, driver.Close(ctx))
	}
	return &opened{vendor: driver, loadID: loadID}, nil
}

// openAMD opens amdgpu. Its files are the host's: a container's own /proc knows
// the container's processes only.
func (c *Config) openAMD(ctx context.Context) (*opened, error) {
	return c.useAMD(ctx, amd.Config{Files: amd.Host(c.HostRoot), HostDevRoot: "/"})
}

// useAMD opens an amdgpu, real or simulated. A machine whose screen is driven by
// one has no card for us.
func (c *Config) useAMD(ctx context.Context, config amd.Config) (*opened, error) {
	config.Logger, config.BusyPatience = klog.FromContext(ctx), c.BusyPatience
	driver, err := amd.New(config)
	if err != nil {
		return nil, err
	}
	if err := driver.Open(ctx); err != nil {
		return nil, errors.Join(errNoHardware, err)
	}
	loadID, err := driver.LoadID()
	if err != nil {
		return nil, errors.Join(errNoHardware, err)
	}
	if cards, err := driver.Inventory(ctx); err == nil && len(cards) == 0 {
		return nil, fmt.Errorf("%w: amdgpu drives no card that is made for computing", errNoHardware)
	}
	return &opened{vendor: driver, loadID: loadID}, nil
}

// simulated opens the cards of an inventory.
func (c *Config) simulated(ctx context.Context, name string) ([]opener, error) {
	inv, err := inventory.Load(name, c.SimulateDir)
	if err != nil {
		return nil, err
	}
	klog.FromContext(ctx).V(2).Info("The GPUs of this node are simulated", "inventory", name, "root", c.SimulateRoot)
	var openers []opener
	if len(inv.GPUs) > 0 {
		openers = append(openers, opener{gpu.NVIDIA, func(ctx context.Context) (*opened, error) {
			library, err := simulate.New(inv, simulate.Options{Root: c.SimulateRoot, Seed: c.NodeName})
			if err != nil {
				return nil, fmt.Errorf("simulate %s: %w", name, err)
			}
			return c.useNVIDIA(ctx, nvidia.Config{
				NVML:       library,
				DriverRoot: filepath.Join(c.SimulateRoot, "driver"),
				ProcRoot:   c.SimulateRoot,
				SysRoot:    filepath.Join(c.SimulateRoot, "sys"),
			})
		}})
	}
	if len(inv.AMD) > 0 {
		openers = append(openers, opener{gpu.AMD, func(ctx context.Context) (*opened, error) {
			kernel, err := amdgpu.New(inv, amdgpu.Options{Root: c.SimulateRoot, Seed: c.NodeName})
			if err != nil {
				return nil, fmt.Errorf("simulate %s: %w", name, err)
			}
			return c.useAMD(ctx, amd.Config{Files: kernel, HostDevRoot: c.SimulateRoot})
		}})
	}
	return openers, nil
}

// inventory names what to simulate on this node, nothing for real hardware.
func (c *Config) inventory() string {
	if name, ok := c.SimulateNodes[c.NodeName]; ok {
		return name
	}
	return c.Simulate
}
