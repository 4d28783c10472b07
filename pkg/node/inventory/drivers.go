package inventory

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/tranche-dev/tranche/pkg/claim/ledger"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware"
	"github.com/tranche-dev/tranche/pkg/lists"
)

// Drivers has the drivers of all vendors on the node, and knows which GPU has which.
type Drivers struct {
	cfg DriversConfig
	// openers open the drivers. reported has the reported reasons why some are not open. Only
	// the goroutine that opens drivers uses these.
	openers  []*opener
	reported map[gpu.Vendor]string

	// mu protects the fields below.
	mu sync.RWMutex
	// vendors has the drivers that were opened or could not be opened.
	vendors []*VendorDriver
	// owners has the driver of each GPU, by PCI address. Lost GPUs stay in it.
	owners map[string]*VendorDriver
	// failed is why drivers that are expected cannot be used.
	failed map[gpu.Vendor]error
	// unlisted is why drivers that are open do not list their GPUs.
	unlisted map[gpu.Vendor]error
}

// DriversConfig has what Drivers work with.
type DriversConfig struct {
	// Vendors are those whose GPUs the node may have.
	Vendors []hardware.Vendor
	// Upgrades returns the vendors whose drivers are being replaced, with the signal that says
	// so.
	Upgrades func() map[gpu.Vendor]string
	// Roster has the GPUs that the node has had.
	Roster *Roster
	Events Events
	// Stop ends the process with an error that only a restart can fix.
	Stop func(error)

	// patience is how long opening one driver may take; zero: openPatience.
	patience time.Duration
}

// Events writes events about the node. *telemetry.Events is one.
type Events interface {
	Warn(ctx context.Context, reason, message string)
}

// NewDrivers returns Drivers without drivers. See Open.
func NewDrivers(c DriversConfig) *Drivers {
	h := &Drivers{cfg: c}
	for _, v := range c.Vendors {
		h.openers = append(h.openers, &opener{name: v.Name(), open: v.Open})
	}
	return h
}

// add adds the driver of a vendor, or replaces it.
func (h *Drivers) add(o *VendorDriver) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.vendors = slices.DeleteFunc(slices.Clone(h.vendors), func(v *VendorDriver) bool { return v.Name == o.Name })
	h.vendors = append(h.vendors, o)
	slices.SortFunc(h.vendors, func(a, b *VendorDriver) int { return -cmp.Compare(a.Name, b.Name) })
	for address, owner := range h.owners {
		if owner.Name == o.Name {
			h.owners[address] = o
		}
	}
}

// All returns the drivers that can be used.
func (h *Drivers) All() []*VendorDriver {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return slices.DeleteFunc(slices.Clone(h.vendors), func(o *VendorDriver) bool { return o.Driver == nil })
}

// Find returns the driver of a vendor, whether it can be used or not; nil: there was no attempt
// to open it.
func (h *Drivers) Find(name gpu.Vendor) *VendorDriver {
	h.mu.RLock()
	defer h.mu.RUnlock()
	for _, o := range h.vendors {
		if o.Name == name {
			return o
		}
	}
	return nil
}

// CannotUse records that a vendor's driver cannot be used, and why. o is its new state; nil: the
// known one.
func (h *Drivers) CannotUse(name gpu.Vendor, o *VendorDriver, err error) {
	if o == nil {
		o = h.Find(name)
	}
	if o == nil {
		o = &VendorDriver{}
	}
	now := o.unusable(err) // a copy, because other goroutines read o
	now.Name = name
	h.add(now)
}

// WhyNot says why the driver of a vendor cannot be used, nil if it can.
func (h *Drivers) WhyNot(name gpu.Vendor) error {
	if o := h.Find(name); o != nil && o.Driver == nil {
		return o.err
	}
	return nil
}

// Has reports whether a vendor's driver can be used.
func (h *Drivers) Has(name gpu.Vendor) bool {
	return slices.ContainsFunc(h.All(), func(o *VendorDriver) bool { return o.Name == name })
}

// Learn records the drivers of the GPUs in the ledger. A GPU that does not answer is in no
// inventory, but its claims must be released. Devices of earlier loads need no driver.
func (h *Drivers) Learn(records []ledger.Record) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, r := range records {
		for _, d := range r.Devices {
			for _, o := range h.vendors {
				if load := o.Load(); load != "" && load == d.LoadID {
					h.own(d.Placement.GPU, o)
				}
			}
		}
	}
}

// own records the driver of a GPU. The caller holds the lock.
func (h *Drivers) own(pciAddress string, o *VendorDriver) {
	if h.owners == nil {
		h.owners = map[string]*VendorDriver{}
	}
	if pciAddress != "" {
		h.owners[pciAddress] = o
	}
}

// Of returns the driver of a GPU. It is a hardware.Lookup.
func (h *Drivers) Of(pciAddress string) (hardware.Driver, error) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	o := h.owners[pciAddress]
	if o == nil {
		return nil, fmt.Errorf("no driver on this node serves GPU %s", gpu.NameOf(pciAddress))
	}
	if o.Driver == nil {
		return nil, &gpu.DriverError{PCIAddress: pciAddress, Vendor: o.Name, Err: o.err}
	}
	return o.Driver, nil
}

// Expect records the drivers of known GPUs whose driver cannot be used.
func (h *Drivers) Expect(gpus []gpu.GPU) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range gpus {
		for _, o := range h.vendors {
			if o.Name == gpus[i].Vendor {
				h.own(gpus[i].PCIAddress, o)
			}
		}
	}
}

// LoadID identifies the current boot and load of a GPU's driver; empty if the GPU has none.
func (h *Drivers) LoadID(pciAddress string) string {
	h.mu.RLock()
	o := h.owners[pciAddress]
	h.mu.RUnlock()
	if o == nil {
		return ""
	}
	return o.Load()
}

// closePatience is how long closing the drivers may take.
const closePatience = 5 * time.Second

// Close closes all drivers. It does not wait for calls that hang.
func (h *Drivers) Close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closePatience)
	defer cancel()
	errs := lists.Map(h.All(), func(o *VendorDriver) error { return o.Close(ctx) })
	return errors.Join(errs...)
}

// Listing is what the drivers tell about the GPUs of the node.
type Listing struct {
	// Found are the GPUs that answered, in PCI order.
	Found []gpu.GPU
	// Problems has the GPUs that did not answer, by PCI address.
	Problems map[string]gpu.Problem
	// Told are the vendors of which all GPUs are in one of the two.
	Told []gpu.Vendor
	// Failed says why drivers listed no GPU at all.
	Failed map[gpu.Vendor]error
}

// List lists the GPUs. A driver that fails or hangs takes only its own GPUs out.
func (h *Drivers) List(ctx context.Context) Listing {
	l := Listing{Problems: map[string]gpu.Problem{}, Failed: map[gpu.Vendor]error{}}
	vendors := h.All()
	found, errs := make([][]gpu.GPU, len(vendors)), make([]error, len(vendors))
	var wg sync.WaitGroup
	for i, o := range vendors {
		wg.Go(func() { found[i], errs[i] = o.Inventory(ctx) })
	}
	wg.Wait()
	for i, o := range vendors {
		part := &gpu.InventoryError{}
		if errs[i] != nil && !errors.As(errs[i], &part) {
			l.Failed[o.Name] = errs[i]
			continue
		}
		l.Found = append(l.Found, found[i]...)
		isNamed := true
		for _, g := range part.GPUs {
			if g.PCIAddress == "" {
				isNamed = false
				klog.FromContext(ctx).Error(g.Err, "A GPU of unknown address does not answer", "gpu", g.ID)
				continue
			}
			l.Problems[g.PCIAddress] = gpu.ProblemOf(g.Err)
		}
		if isNamed {
			l.Told = append(l.Told, o.Name)
		}
		h.found(o, found[i], part.GPUs)
	}
	gpu.SortGPUs(l.Found)
	return l
}

// found records the driver of the GPUs of an inventory.
func (h *Drivers) found(o *VendorDriver, gpus []gpu.GPU, broken []*gpu.Error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range gpus {
		h.own(gpus[i].PCIAddress, o)
	}
	for _, c := range broken {
		h.own(c.PCIAddress, o)
	}
}

// LoadWithMPS returns the vendor whose driver has MPS, and the load of that driver; both are
// empty if there is no usable one.
func (h *Drivers) LoadWithMPS() (vendor gpu.Vendor, load string) {
	for _, o := range h.All() {
		if o.ProgramRoot != "" {
			return o.Name, o.Load()
		}
	}
	return "", ""
}

// loadIDAge is how long the ID of a load is cached. Reloading a driver takes longer.
const loadIDAge = time.Second

// VendorDriver is the driver of a vendor.
type VendorDriver struct {
	Name gpu.Vendor
	// Driver is nil while the driver cannot be used; err says why.
	hardware.Driver
	err error
	// readLoad reads the ID of the driver's load while Driver is nil; nil: it cannot be
	// read.
	readLoad func() (string, error)
	// ProgramRoot is the folder of the driver's programs on the host; empty for a driver
	// without MPS.
	ProgramRoot string
	// Resume loads the driver if the plugin has unloaded it and could not load it again.
	// Nil: the plugin never unloads it.
	Resume func(context.Context) error

	// mu protects the fields below.
	mu sync.Mutex
	// loadID was read at loadIDRead.
	loadID     string
	loadIDRead time.Time
}

// openedBy converts the result of opening a vendor's driver; nil for nil.
func openedBy(name gpu.Vendor, o *hardware.Opened) *VendorDriver {
	if o == nil {
		return nil
	}
	return &VendorDriver{
		Name: name, Driver: o.Driver, loadID: o.LoadID, readLoad: o.ReadLoadID, ProgramRoot: o.ProgramRoot, Resume: o.Resume,
	}
}

// Load returns the ID of the driver's load; empty if it is not loaded. While the driver is open,
// and its module is unloaded for a moment, Load returns the last ID: the driver refuses calls
// then. A driver that cannot be used and is not loaded has none, because no partition survives
// that.
func (o *VendorDriver) Load() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	read := o.readLoad
	if o.Driver != nil {
		read = o.LoadID
	}
	if read == nil || time.Since(o.loadIDRead) < loadIDAge {
		return o.loadID
	}
	id, err := read()
	switch {
	case err == nil:
		o.loadID = id
	case o.Driver == nil && errors.Is(err, fs.ErrNotExist):
		o.loadID = ""
	}
	o.loadIDRead = time.Now()
	return o.loadID
}

// unusable returns the same driver as one that cannot be used.
func (o *VendorDriver) unusable(err error) *VendorDriver {
	now := &VendorDriver{Name: o.Name, err: err, ProgramRoot: o.ProgramRoot, readLoad: o.readLoad, loadID: o.Load()}
	if o.Driver != nil {
		now.readLoad = o.LoadID
	}
	return now
}
