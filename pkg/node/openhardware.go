package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"

	"github.com/tranche-dev/tranche/pkg/claim/ledger"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware/amd"
	"github.com/tranche-dev/tranche/pkg/hardware/kmod"
	"github.com/tranche-dev/tranche/pkg/hardware/mps"
	"github.com/tranche-dev/tranche/pkg/hardware/nvidia"
	"github.com/tranche-dev/tranche/pkg/models"
	"github.com/tranche-dev/tranche/pkg/simulate/amdgpu"
	"github.com/tranche-dev/tranche/pkg/simulate/nvdriver"
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
		switch o, err := attempts[i].driver, attempts[i].err; {
		case err != nil:
			h.cannotUse(vendor.name, o, err)
			failed[vendor.name] = err
		case o != nil:
			o.name = vendor.name
			h.add(o)
			added = append(added, o)
		}
	}
	return added, failed
}

// openDrivers opens the drivers that are not open, but for those that are being
// replaced. It returns those that now are.
func (p *plugin) openDrivers(ctx context.Context) (added []*opened) {
	upgrades := p.node.upgrades()
	openers := slices.DeleteFunc(slices.Clone(p.openers), func(o *opener) bool { return upgrades[o.name] != "" })
	added, failed := p.hardware.openMissing(ctx, openers, openPatience)
	for _, o := range p.openers {
		if why := upgrades[o.name]; why != "" && !p.hardware.has(o.name) {
			failed[o.name] = &upgradeError{why}
			p.hardware.cannotUse(o.name, nil, failed[o.name])
		}
	}
	p.tellFailures(ctx, failed)
	return added
}

// waitForHardware returns when there is something to serve: cards and a driver for them,
// or cards that were here before, claims that hold some, or a driver that is loaded and
// cannot be used. Then the kubelet is served without that driver until it can be used:
// pods that hold cards must be able to leave, which may be what the driver waits for.
// Most nodes of a cluster have none of that; there the plugin idles.
func (p *plugin) waitForHardware(ctx context.Context, records *ledger.Ledger) error {
	openers, err := p.vendors(ctx)
	if err != nil {
		p.events.lastWords(ctx, "HardwareUnusable", fmt.Sprintf("Tranche cannot use the GPUs of this node: %v", err))
		return err
	}
	p.openers = openers
	p.hardware = &hardware{}
	said := ""
	err = wait.PollUntilContextCancel(ctx, p.idleInterval(), true, func(ctx context.Context) (bool, error) {
		if added := p.openDrivers(ctx); len(added) > 0 || p.drivers.problem() != nil || len(records.List()) > 0 {
			return true, nil
		}
		p.registration.idle.Store(true)
		if reason := p.whyIdle(); reason != said {
			said = reason
			klog.FromContext(ctx).Info("Nothing to publish, looking again from time to time", "reason", said, "every", p.idleInterval())
		}
		return false, nil
	})
	p.serving = err == nil
	return err
}

// whyIdle says why no driver is open.
func (p *plugin) whyIdle() string {
	var reasons []string
	for _, o := range p.openers {
		if err := p.hardware.whyNot(o.name); err != nil {
			reasons = append(reasons, err.Error())
		}
	}
	return strings.Join(reasons, "; ")
}

func (p *plugin) closeHardware(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if err := p.hardware.Close(ctx); err != nil {
		klog.FromContext(ctx).Error(err, "Closing the hardware failed")
	}
}

// tellFailures takes in which drivers cannot be used, and says once why.
func (p *plugin) tellFailures(ctx context.Context, failed map[gpu.Vendor]error) {
	told, expected := map[gpu.Vendor]string{}, map[gpu.Vendor]error{}
	for vendor, err := range failed {
		told[vendor] = err.Error()
		isExpected := p.expects(vendor, err)
		if isExpected {
			expected[vendor] = err
		}
		upgrade := (*upgradeError)(nil)
		switch {
		case p.toldFailures[vendor] == told[vendor]:
		case !isExpected:
			klog.FromContext(ctx).V(2).Info("No cards of this vendor; looking again from time to time", "vendor", vendor, "reason", told[vendor], "every", p.idleInterval())
		case errors.As(err, &upgrade): // told when it was released
		default:
			p.events.warn(ctx, "HardwareUnusable", fmt.Sprintf("Tranche cannot use the %s GPUs of this node, and tries again: %v. Pods that hold some can leave; no new ones get any", vendor.Title(), err))
		}
	}
	p.toldFailures = told
	p.drivers.set(expected)
}

// expects tells whether the node should have a driver that can be used: it had cards of
// the vendor, or the driver's module is loaded.
func (p *plugin) expects(vendor gpu.Vendor, err error) bool {
	if !errors.Is(err, errNoHardware) && !errors.As(err, new(*upgradeError)) {
		return true
	}
	if slices.ContainsFunc(p.roster.all(), func(g gpu.GPU) bool { return g.Vendor == vendor }) {
		return true
	}
	o := p.hardware.find(vendor)
	return o != nil && o.load() != ""
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
		return withoutLibrary("/", "/sys", err)
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

// withoutLibrary is an NVIDIA driver whose library is not there, and whose module is
// maybe loaded: while an upgrade installs another one, or after one that went wrong.
func withoutLibrary(procRoot, sysRoot string, err error) (*opened, error) {
	read := func() (string, error) { return nvidia.LoadID(procRoot, sysRoot) }
	if id, notLoaded := read(); notLoaded == nil {
		return &opened{loadID: id, readLoad: read}, fmt.Errorf("its kernel module is loaded, but there is %w", err)
	}
	return nil, notThere(gpu.NVIDIA, err)
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
		return &opened{loadID: loadID, readLoad: driver.LoadID}, err
	}
	if err := c.installHook(); err != nil {
		return &opened{loadID: loadID, readLoad: driver.LoadID}, errors.Join(err, driver.Close(ctx))
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
	inv, err := models.LoadInventory(name, c.SimulateDir)
	if err != nil {
		return nil, err
	}
	klog.FromContext(ctx).V(2).Info("The GPUs of this node are simulated", "inventory", name, "root", c.SimulateRoot)
	var openers []*opener
	if len(inv.GPUs) > 0 {
		openers = append(openers, &opener{name: gpu.NVIDIA, open: func(ctx context.Context) (*opened, error) {
			// Who replaces the driver brings another version.
			inv, err := models.LoadInventory(name, c.SimulateDir)
			if err != nil {
				return nil, err
			}
			switch missing, err := nvdriver.LibraryMissing(c.SimulateRoot); {
			case err != nil:
				return nil, err
			case missing:
				return withoutLibrary(c.SimulateRoot, filepath.Join(c.SimulateRoot, "sys"), errors.New("no library: faults.yaml says that it is missing"))
			}
			library, err := nvdriver.New(inv, nvdriver.Options{Root: c.SimulateRoot, Seed: c.NodeName, Tools: c.SimulateTools})
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
