package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware/amd"
	"github.com/tranche-dev/tranche/pkg/hardware/kmod"
	"github.com/tranche-dev/tranche/pkg/hardware/mps"
	"github.com/tranche-dev/tranche/pkg/hardware/nvidia"
	"github.com/tranche-dev/tranche/pkg/hardware/simulate"
	"github.com/tranche-dev/tranche/pkg/hardware/simulate/amdgpu"
	"github.com/tranche-dev/tranche/pkg/hardware/simulate/inventory"
)

// errNoHardware says that the node has no card that we could serve, or no
// driver for it yet.
var errNoHardware = errors.New("no GPU driver on this node")

// notThere says that a vendor's driver is not there.
func notThere(v gpu.Vendor, err error) error {
	return fmt.Errorf("%w (%s): %w", errNoHardware, v.Title(), err)
}

// opener opens the driver of one vendor.
type opener struct {
	name gpu.Vendor
	// open fails with errNoHardware when there is no driver yet. A driver that is
	// loaded and cannot be used comes back beside the error.
	open func(context.Context) (*opened, error)
	// underWay brings what open answers, while it has not; nil: it is not running.
	underWay chan attempt
}

// attempt is what came of opening a driver.
type attempt struct {
	driver *opened
	err    error
}

// openPatience is how long one driver may take to be opened. Opening the library
// of eight cards that sleep takes a while.
const openPatience = 30 * time.Second

// try opens the driver, and returns when that is done or patience ends. A driver
// that hangs is not opened a second time: the next try waits for the same answer.
func (o *opener) try(ctx context.Context, patience <-chan time.Time) (*opened, error) {
	if o.underWay == nil {
		answer := make(chan attempt, 1)
		o.underWay = answer
		go func() {
			driver, err := o.open(ctx)
			answer <- attempt{driver, err}
		}()
	}
	select {
	case a := <-o.underWay:
		o.underWay = nil
		return a.driver, a.err
	case <-patience:
		return nil, notThere(o.name, errors.New("its driver hangs while it is opened; look for it in dmesg"))
	case <-ctx.Done():
		return nil, notThere(o.name, ctx.Err())
	}
}

// vendors are those that the node may have cards of.
func (c *Config) vendors(ctx context.Context) ([]*opener, error) {
	if name := c.inventory(); name != "" {
		return c.simulated(ctx, name)
	}
	return []*opener{{name: gpu.NVIDIA, open: c.openNVIDIA}, {name: gpu.AMD, open: c.openAMD}}, nil
}

// openMissing opens the drivers that are not open yet, all at once. It returns
// those that now are, and why the others are not, by vendor.
func (h *hardware) openMissing(ctx context.Context, openers []*opener, patience time.Duration) (added []*opened, failed map[gpu.Vendor]error) {
	failed = map[gpu.Vendor]error{}
	attempts := make([]attempt, len(openers))
	var wg sync.WaitGroup
	for i, vendor := range openers {
		if !h.has(vendor.name) {
			wg.Go(func() { attempts[i].driver, attempts[i].err = vendor.try(ctx, time.After(patience)) })
		}
	}
	wg.Wait()
	for i, vendor := range openers {
		o, err := attempts[i].driver, attempts[i].err
		if o != nil {
			o.name, o.err = vendor.name, err
			h.add(o)
		}
		switch {
		case err != nil:
			failed[vendor.name] = err
		case o != nil:
			added = append(added, o)
		}
	}
	return added, failed
}

// openHardware finds the cards of the node. The drivers that it does not find
// are looked for again from time to time, as long as the plugin runs.
func (p *plugin) openHardware(ctx context.Context) (*hardware, error) {
	if p.openers == nil {
		openers, err := p.vendors(ctx)
		if err != nil {
			return nil, err
		}
		p.openers = openers
	}
	h := &hardware{}
	added, failed := h.openMissing(ctx, p.openers, openPatience)
	if len(added) > 0 {
		p.tellFailures(ctx, failed)
		return h, nil
	}
	var none []error
	for _, o := range p.openers {
		err := failed[o.name]
		if !errors.Is(err, errNoHardware) {
			return nil, err
		}
		none = append(none, err)
	}
	return nil, errors.Join(none...)
}

// waitForHardware returns when the node has cards and a driver for them. Most
// nodes of a cluster have none; there the plugin idles.
func (p *plugin) waitForHardware(ctx context.Context) error {
	said := ""
	return wait.PollUntilContextCancel(ctx, p.idleInterval(), true, func(ctx context.Context) (bool, error) {
		hardware, err := p.openHardware(ctx)
		if errors.Is(err, errNoHardware) {
			p.registration.idle.Store(true)
			if reason := strings.ReplaceAll(err.Error(), "\n", "; "); reason != said {
				said = reason
				klog.FromContext(ctx).Info("Nothing to publish, looking again from time to time", "reason", said, "every", p.idleInterval())
			}
			return false, nil
		}
		if err != nil {
			p.events.lastWords(ctx, "HardwareUnusable", fmt.Sprintf("Tranche cannot use the GPUs of this node: %v", err))
			return false, err
		}
		p.hardware = hardware
		return true, nil
	})
}

func (p *plugin) closeHardware(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if err := p.hardware.Close(ctx); err != nil {
		klog.FromContext(ctx).Error(err, "Closing the hardware failed")
	}
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
		added, failed := p.hardware.openMissing(ctx, p.openers, openPatience)
		p.tellFailures(ctx, failed)
		for _, o := range added {
			p.driverFound(ctx, o)
			p.events.note(ctx, "DriverFound", fmt.Sprintf("The driver of this node's %s GPUs is there now; Tranche gives them out", o.name.Title()))
			watches.Go(func() { p.watchHealth(ctx, o) })
		}
		if len(added) > 0 {
			p.hardware.learn(p.claims.Ledger.List())
		}
	}, p.idleInterval())
}

// resumeDrivers puts in, as long as that fails, what a change of the memory mode has
// taken out: a driver that is open is not looked for.
func (p *plugin) resumeDrivers(ctx context.Context) {
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		for _, o := range p.hardware.all() {
			if o.resume == nil {
				continue
			}
			if err := o.resume(ctx); err != nil && ctx.Err() == nil {
				klog.FromContext(ctx).Info("A driver is not there", "vendor", o.name, "reason", err.Error())
			}
		}
	}, p.idleInterval())
}

func (c *Config) openNVIDIA(ctx context.Context) (*opened, error) {
	root, library, err := nvidia.FindDriverRoot(c.HostRoot, c.NVIDIADriverRoot)
	if err != nil {
		return nil, notThere(gpu.NVIDIA, err)
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
	driverRoot := cmp.Or(config.HostDriverRoot, config.DriverRoot)
	config.Run = mps.New(mps.Config{HostRoot: c.HostRoot, DriverRoot: driverRoot}).Run
	driver, err := nvidia.New(config)
	if err != nil {
		return nil, err
	}
	loadID, err := driver.LoadID()
	if err != nil {
		return nil, notThere(gpu.NVIDIA, err)
	}
	if err := driver.Open(ctx); err != nil {
		return &opened{loadID: loadID}, notThere(gpu.NVIDIA, err)
	}
	if err := c.installHook(); err != nil {
		return &opened{loadID: loadID}, errors.Join(err, driver.Close(ctx))
	}
	return &opened{vendor: driver, loadID: loadID, driverRoot: driverRoot}, nil
}

// openAMD opens amdgpu. Its files are the host's: a container's own /proc knows
// the container's processes only.
func (c *Config) openAMD(ctx context.Context) (*opened, error) {
	module := c.amdgpu(ctx)
	// The host's programs, not those of a driver: modprobe.
	module.Run = mps.New(mps.Config{HostRoot: c.HostRoot}).Run
	module.ReadFile = func(name string) ([]byte, error) { return os.ReadFile(filepath.Join(c.HostRoot, name)) }
	if c.Dynamic != nil {
		module.Manager = &kmod.KMM{Client: c.Dynamic, Node: c.NodeName, Module: module.Name}
	}
	return c.useAMD(ctx, amd.Config{Files: amd.Host(c.HostRoot), HostDevRoot: "/"}, module)
}

// amdgpu is AMD's driver as a module of the kernel.
func (c *Config) amdgpu(ctx context.Context) *kmod.Module {
	return &kmod.Module{Name: "amdgpu", Marker: filepath.Join(c.dataDir(), "amdgpu-is-out"), Logger: klog.FromContext(ctx)}
}

// useAMD opens an amdgpu, real or simulated. A machine whose screen is driven by
// one has no card for us. The module is loaded anew where a profile may ask for it.
func (c *Config) useAMD(ctx context.Context, config amd.Config, module *kmod.Module) (*opened, error) {
	config.Logger, config.BusyPatience = klog.FromContext(ctx), c.BusyPatience
	if c.MemoryModes {
		config.Reload = module.Reload
		if err := module.Resume(ctx); err != nil {
			return nil, notThere(gpu.AMD, err)
		}
	}
	driver, err := amd.New(config)
	if err != nil {
		return nil, err
	}
	if err := driver.Open(ctx); err != nil {
		return nil, notThere(gpu.AMD, err)
	}
	loadID, err := driver.LoadID() //nolint:contextcheck // it has a deadline of its own
	if err != nil {
		return nil, notThere(gpu.AMD, err)
	}
	if cards, err := driver.Inventory(ctx); err == nil && len(cards) == 0 {
		return nil, notThere(gpu.AMD, errors.New("amdgpu drives no card that is made for computing"))
	}
	o := &opened{vendor: driver, loadID: loadID}
	if c.MemoryModes {
		o.resume = module.Resume
	}
	return o, nil
}

// simulatedLookPause is kmod.Module's LookPause for a driver that is loaded at once.
const simulatedLookPause = 100 * time.Millisecond

// simulated opens the cards of an inventory.
func (c *Config) simulated(ctx context.Context, name string) ([]*opener, error) {
	inv, err := inventory.Load(name, c.SimulateDir)
	if err != nil {
		return nil, err
	}
	klog.FromContext(ctx).V(2).Info("The GPUs of this node are simulated", "inventory", name, "root", c.SimulateRoot)
	var openers []*opener
	if len(inv.GPUs) > 0 {
		openers = append(openers, &opener{name: gpu.NVIDIA, open: func(ctx context.Context) (*opened, error) {
			library, err := simulate.New(inv, simulate.Options{Root: c.SimulateRoot, Seed: c.NodeName, Tools: c.SimulateTools})
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
		openers = append(openers, &opener{name: gpu.AMD, open: func(ctx context.Context) (*opened, error) {
			kernel, err := amdgpu.New(inv, amdgpu.Options{Root: c.SimulateRoot, Seed: c.NodeName})
			if err != nil {
				return nil, fmt.Errorf("simulate %s: %w", name, err)
			}
			module := c.amdgpu(ctx)
			module.Run, module.ReadFile, module.LookPause = kernel.Modprobe, kernel.ReadFile, simulatedLookPause
			return c.useAMD(ctx, amd.Config{Files: kernel, HostDevRoot: c.SimulateRoot}, module)
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
