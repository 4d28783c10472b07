package sysfs

import (
	"context"
	"maps"
	"path"
	"slices"
	"sync"
	"time"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/lists"
)

// vendorName stands in errors for the vendor's id of a GPU: AMD has none that stays the same.
const vendorName = "amdgpu"

// readAheadPatience is how long the GPUs wait for the topology.
const readAheadPatience = time.Second

// Inventory lists the GPUs in PCI order, with all their placements. If some GPUs cannot be
// read or are gone, it returns the others, and an error of type *gpu.InventoryError that names
// those.
func (m *Machine) Inventory(ctx context.Context) ([]gpu.GPU, error) {
	all, err := m.WithLost(ctx)
	if err != nil {
		return nil, err
	}
	m.readAhead(ctx)
	gpus := make([]gpu.GPU, len(all))
	ours := make([]bool, len(all))
	failed := make([]error, len(all))
	links := make([]gpu.Links, len(all))
	var wait sync.WaitGroup
	for i, address := range all {
		wait.Go(func() {
			gpus[i], failed[i] = OnGPU(ctx, m, address, func(c *GPU) (gpu.GPU, error) {
				var err error
				if ours[i], err = c.ours(); err != nil || !ours[i] {
					return gpu.GPU{}, err
				}
				g, err := c.describe()
				if err == nil {
					links[i] = c.links()
				}
				return g, err
			})
		})
	}
	wait.Wait()

	var good []gpu.GPU
	linksOf := map[string]gpu.Links{}
	broken := &gpu.InventoryError{}
	for i, err := range failed {
		switch {
		case err != nil:
			broken.GPUs = append(broken.GPUs, &gpu.Error{PCIAddress: all[i], ID: vendorName, Err: err})
		case ours[i]:
			good = append(good, gpus[i])
			linksOf[all[i]] = links[i]
		}
	}
	gpu.SortGPUs(good)
	gpu.SetLinkGroups(good, linksOf)
	m.remember(good)
	if len(broken.GPUs) > 0 {
		return good, broken
	}
	return good, nil
}

// readAhead reads the topology once for all GPUs. If that fails, or the topology changes, each
// GPU reads it itself.
func (m *Machine) readAhead(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, readAheadPatience)
	defer cancel()
	if _, err := through(ctx, m, m.host, m.recentTopology); err != nil {
		m.logger.V(1).Info("KFD's topology cannot be read", "reason", err.Error())
	}
}

// remember keeps the GPUs, numbered in PCI order.
func (m *Machine) remember(gpus []gpu.GPU) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range gpus {
		gpus[i].Index = i
		m.known[gpus[i].PCIAddress] = gpus[i]
	}
}

// Addresses are the GPUs that amdgpu drives.
func (m *Machine) Addresses(ctx context.Context) ([]string, error) {
	return through(ctx, m, m.host, func(t *Task) ([]string, error) {
		names, err := t.List(DriverDirs[0])
		if Absent(err) {
			names, err = t.List(DriverDirs[1])
		}
		if err != nil {
			return nil, err
		}
		var addresses []string
		for _, name := range names {
			if address, err := gpu.NormalizePCIAddress(name); err == nil && address == name {
				addresses = append(addresses, address)
			}
		}
		return addresses, nil
	})
}

// WithLost are the GPUs that amdgpu drives, and those that it drove before.
func (m *Machine) WithLost(ctx context.Context) ([]string, error) {
	addresses, err := m.Addresses(ctx)
	if err != nil {
		return nil, err
	}
	addresses = lists.Union(addresses, m.KnownAddresses()...)
	slices.Sort(addresses)
	return addresses, nil
}

// Known is a GPU as Inventory last reported it.
func (m *Machine) Known(pciAddress string) (gpu.GPU, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	g, ok := m.known[pciAddress]
	return g, ok
}

// KnownAddresses are the GPUs that Inventory has listed, in order.
func (m *Machine) KnownAddresses() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Sorted(maps.Keys(m.known))
}

// ours reports whether Tranche publishes the GPU: it can be partitioned, or it is made
// for computing. Graphics GPUs, the graphics of processors and GPUs without KFD are not.
func (c *GPU) ours() (bool, error) {
	_, err := c.Stat(c.File(ComputeFile))
	if !Absent(err) {
		return err == nil, err
	}
	top, err := c.machine.recentTopology(c.Task)
	if err != nil {
		return false, err
	}
	a, err := ParseAddress(c.PCIAddress)
	if err != nil {
		return false, err
	}
	_, known := c.machine.Known(c.PCIAddress)
	return known || slices.ContainsFunc(top.Of(a), Node.Computes), nil
}

// CheckBound returns an error unless amdgpu still drives the GPU.
func (c *GPU) CheckBound() error {
	var err error
	for _, dir := range DriverDirs {
		if _, err = c.Stat(path.Join(dir, c.PCIAddress)); err == nil {
			return nil
		}
		if !Absent(err) {
			return err
		}
	}
	return c.Gone(err)
}
