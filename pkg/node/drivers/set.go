package drivers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"k8s.io/klog/v2"
	cdispecs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/tranche-dev/tranche/pkg/claim/ledger"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware"
)

// Set has the drivers of all vendors on the node. It implements hardware.Partitioner: a call for
// a GPU goes to the driver of its vendor.
type Set struct {
	// mu protects the fields below.
	mu sync.RWMutex
	// vendors has the drivers that were opened or could not be opened.
	vendors []*Opened
	// owners has the driver of each GPU, by PCI address. Lost GPUs stay in it.
	owners map[string]*Opened
}

var _ hardware.Partitioner = (*Set)(nil)

// add adds the driver of a vendor, or replaces it.
func (h *Set) add(o *Opened) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.vendors = slices.DeleteFunc(slices.Clone(h.vendors), func(v *Opened) bool { return v.Name == o.Name })
	h.vendors = append(h.vendors, o)
	slices.SortFunc(h.vendors, func(a, b *Opened) int { return -cmp.Compare(a.Name, b.Name) })
	for address, owner := range h.owners {
		if owner.Name == o.Name {
			h.owners[address] = o
		}
	}
}

// All returns the drivers that can be used.
func (h *Set) All() []*Opened {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return slices.DeleteFunc(slices.Clone(h.vendors), func(o *Opened) bool { return o.Driver == nil })
}

// Find returns the driver of a vendor, whether it can be used or not; nil: there was no attempt
// to open it.
func (h *Set) Find(name gpu.Vendor) *Opened {
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
func (h *Set) CannotUse(name gpu.Vendor, o *Opened, err error) {
	if o == nil {
		o = h.Find(name)
	}
	if o == nil {
		o = &Opened{}
	}
	now := o.unusable(err) // a copy, because other goroutines read o
	now.Name = name
	h.add(now)
}

// WhyNot says why the driver of a vendor cannot be used, nil if it can.
func (h *Set) WhyNot(name gpu.Vendor) error {
	if o := h.Find(name); o != nil && o.Driver == nil {
		return o.err
	}
	return nil
}

// Has tells whether a vendor's driver can be used.
func (h *Set) Has(name gpu.Vendor) bool {
	return slices.ContainsFunc(h.All(), func(o *Opened) bool { return o.Name == name })
}

// Learn records the drivers of the GPUs in the ledger. A GPU that does not answer is in no
// inventory, but its claims must be released. Devices of earlier loads need no driver.
func (h *Set) Learn(records []ledger.Record) {
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
func (h *Set) own(pciAddress string, o *Opened) {
	if h.owners == nil {
		h.owners = map[string]*Opened{}
	}
	if pciAddress != "" {
		h.owners[pciAddress] = o
	}
}

// of returns the driver of a GPU.
func (h *Set) of(pciAddress string) (*Opened, error) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	o := h.owners[pciAddress]
	if o == nil {
		return nil, fmt.Errorf("no driver on this node serves GPU %s", gpu.NameOf(pciAddress))
	}
	if o.Driver == nil {
		return nil, &gpu.DriverError{PCIAddress: pciAddress, Vendor: o.Name, Err: o.err}
	}
	return o, nil
}

// Expect records the drivers of known GPUs whose driver cannot be used.
func (h *Set) Expect(gpus []gpu.GPU) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range gpus {
		for _, o := range h.vendors {
			if o.Name == gpus[i].Vendor && h.owners[gpus[i].PCIAddress] == nil {
				h.own(gpus[i].PCIAddress, o)
			}
		}
	}
}

// LoadID identifies the current boot and load of a GPU's driver; empty if the GPU has none.
func (h *Set) LoadID(pciAddress string) string {
	h.mu.RLock()
	o := h.owners[pciAddress]
	h.mu.RUnlock()
	if o == nil {
		return ""
	}
	return o.Load()
}

// Close closes all drivers.
func (h *Set) Close(ctx context.Context) error {
	var errs []error
	for _, o := range h.All() {
		errs = append(errs, o.Close(ctx))
	}
	return errors.Join(errs...)
}

// Listing is what the drivers tell about the GPUs of the node.
type Listing struct {
	// Found are the GPUs that answered, in PCI order.
	Found []gpu.GPU
	// Problems has the GPUs that did not answer, by PCI address.
	Problems map[string]string
	// Told are the vendors of which all GPUs are in one of the two.
	Told []gpu.Vendor
	// Failed says why drivers listed no GPU at all.
	Failed map[gpu.Vendor]error
}

// List lists the GPUs. A driver that fails or hangs takes only its own GPUs out.
func (h *Set) List(ctx context.Context) Listing {
	l, broken := h.list(ctx)
	for _, g := range broken {
		if g.PCIAddress == "" {
			klog.FromContext(ctx).Error(g.Err, "A GPU of unknown address does not answer", "gpu", g.ID)
			continue
		}
		l.Problems[g.PCIAddress] = g.Err.Error()
	}
	return l
}

// Inventory implements hardware.Partitioner.
func (h *Set) Inventory(ctx context.Context) ([]gpu.GPU, error) {
	l, broken := h.list(ctx)
	errs := slices.Collect(maps.Values(l.Failed))
	if len(broken) > 0 {
		errs = append(errs, &gpu.InventoryError{GPUs: broken})
	}
	return l.Found, errors.Join(errs...)
}

// list is List without problems. broken are the GPUs that did not answer.
func (h *Set) list(ctx context.Context) (l Listing, broken []*gpu.Error) {
	l = Listing{Problems: map[string]string{}, Failed: map[gpu.Vendor]error{}}
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
		if !slices.ContainsFunc(part.GPUs, func(c *gpu.Error) bool { return c.PCIAddress == "" }) {
			l.Told = append(l.Told, o.Name)
		}
		h.found(o, found[i], part.GPUs)
		l.Found, broken = append(l.Found, found[i]...), append(broken, part.GPUs...)
	}
	gpu.SortGPUs(l.Found)
	return l, broken
}

// found records the driver of the GPUs of an inventory.
func (h *Set) found(o *Opened, gpus []gpu.GPU, broken []*gpu.Error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range gpus {
		h.own(gpus[i].PCIAddress, o)
	}
	for _, c := range broken {
		h.own(c.PCIAddress, o)
	}
}

// Live implements hardware.Partitioner.
func (h *Set) Live(ctx context.Context, pciAddress string) ([]gpu.Partition, error) {
	o, err := h.of(pciAddress)
	if err != nil {
		return nil, err
	}
	return o.Live(ctx, pciAddress)
}

// Create implements hardware.Partitioner.
func (h *Set) Create(ctx context.Context, p gpu.Placement) (gpu.Partition, error) {
	o, err := h.of(p.GPU)
	if err != nil {
		return gpu.Partition{}, err
	}
	return o.Create(ctx, p)
}

// Destroy implements hardware.Partitioner.
func (h *Set) Destroy(ctx context.Context, p gpu.Placement) error {
	o, err := h.of(p.GPU)
	if err != nil {
		return err
	}
	return o.Destroy(ctx, p)
}

// Edits implements hardware.Partitioner.
func (h *Set) Edits(ctx context.Context, p gpu.Placement) (*cdispecs.ContainerEdits, error) {
	o, err := h.of(p.GPU)
	if err != nil {
		return nil, err
	}
	return o.Edits(ctx, p)
}

// CommonEdits implements hardware.Partitioner. A container with GPUs of two vendors gets the
// edits of both.
func (h *Set) CommonEdits(ctx context.Context, pciAddresses []string) (*cdispecs.ContainerEdits, error) {
	byVendor := map[*Opened][]string{}
	for _, address := range pciAddresses {
		o, err := h.of(address)
		if err != nil {
			return nil, err
		}
		byVendor[o] = append(byVendor[o], address)
	}
	all := &cdispecs.ContainerEdits{}
	for _, o := range h.All() {
		if len(byVendor[o]) == 0 {
			continue
		}
		edits, err := o.CommonEdits(ctx, byVendor[o])
		if err != nil {
			return nil, err
		}
		addEdits(all, edits)
	}
	return all, nil
}

// addEdits adds the edits of one vendor.
func addEdits(to, more *cdispecs.ContainerEdits) {
	to.Env = append(to.Env, more.Env...)
	to.DeviceNodes = append(to.DeviceNodes, more.DeviceNodes...)
	to.Hooks = append(to.Hooks, more.Hooks...)
	to.Mounts = append(to.Mounts, more.Mounts...)
	to.AdditionalGIDs = append(to.AdditionalGIDs, more.AdditionalGIDs...)
}

// CheckHealth returns the problem of a GPU; nil if it is healthy.
func (h *Set) CheckHealth(ctx context.Context, pciAddress string) error {
	o, err := h.of(pciAddress)
	if err != nil {
		return err
	}
	return o.CheckHealth(ctx, pciAddress)
}

// Recovered tells whether the problem of a fatal event is over.
func (h *Set) Recovered(ctx context.Context, e gpu.HealthEvent) (bool, error) {
	o, err := h.of(e.PCIAddress)
	if err != nil {
		return false, err
	}
	return o.Recovered(ctx, e)
}

// Obstacles returns what cannot be allocated of a GPU now; nothing for GPUs without modes.
func (h *Set) Obstacles(ctx context.Context, pciAddress string, held bool) ([]gpu.Obstacle, error) {
	o, err := h.of(pciAddress)
	if err != nil {
		return nil, err
	}
	s, ok := o.Driver.(hardware.Obstructed)
	if !ok {
		return nil, nil
	}
	return s.Obstacles(ctx, pciAddress, held)
}

// RemovalCommand returns the command that removes a partition on the node; empty if there is
// none.
func (h *Set) RemovalCommand(p gpu.Partition) string {
	o, err := h.of(p.GPU)
	if err != nil {
		return ""
	}
	r, ok := o.Driver.(hardware.ForeignRemover)
	if !ok {
		return ""
	}
	return r.RemovalCommand(p)
}
