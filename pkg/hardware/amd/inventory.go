package amd

import (
	"context"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware/xcp"
)

// driverDirs are the folders that have the GPUs of amdgpu by their PCI
// addresses, the first that is there.
var driverDirs = []string{"/sys/bus/pci/drivers/amdgpu", moduleDir + "/drivers/pci:amdgpu"}

// vendorName stands in errors for a vendor's own handle of a GPU: AMD's GPUs
// have numbers of several kinds, and none that stays.
const vendorName = "amdgpu"

// readAheadPatience is how long the GPUs wait for the topology.
const readAheadPatience = time.Second

// Inventory lists the GPUs in PCI order, with all their placements. GPUs that
// cannot be read, and GPUs that were there and are gone, do not hide the others:
// the rest comes out together with an error of type *gpu.InventoryError that
// names them.
func (d *Driver) Inventory(ctx context.Context) ([]gpu.GPU, error) {
	all, err := d.withLost(ctx)
	if err != nil {
		return nil, err
	}
	d.readAhead(ctx)
	gpus := make([]gpu.GPU, len(all))
	ours := make([]bool, len(all))
	failed := make([]error, len(all))
	var wait sync.WaitGroup
	for i, address := range all {
		wait.Go(func() {
			gpus[i], failed[i] = onGPU(ctx, d, address, func(c *gpuHandle) (gpu.GPU, error) {
				var err error
				if ours[i], err = c.ours(); err != nil || !ours[i] {
					return gpu.GPU{}, err
				}
				return c.describe()
			})
		})
	}
	wait.Wait()

	var good []gpu.GPU
	broken := &gpu.InventoryError{}
	for i, err := range failed {
		switch {
		case err != nil:
			broken.GPUs = append(broken.GPUs, &gpu.Error{PCIAddress: all[i], ID: vendorName, Err: err})
		case ours[i]:
			good = append(good, gpus[i])
		}
	}
	gpu.SortGPUs(good)
	d.remember(good)
	if len(broken.GPUs) > 0 {
		return good, broken
	}
	return good, nil
}

// readAhead reads the topology once for all GPUs. One that finds it changed, or
// not there because this failed, reads it for itself.
func (d *Driver) readAhead(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, readAheadPatience)
	defer cancel()
	if _, err := through(ctx, d.host, d.cfg.Files, d.recentTopology); err != nil {
		d.cfg.Logger.V(1).Info("KFD's topology cannot be read", "reason", err.Error())
	}
}

// remember keeps the GPUs, numbered in PCI order.
func (d *Driver) remember(gpus []gpu.GPU) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i := range gpus {
		gpus[i].Index = i
		d.known[gpus[i].PCIAddress] = gpus[i]
	}
}

// addresses are the GPUs that amdgpu drives.
func (d *Driver) addresses(ctx context.Context) ([]string, error) {
	return through(ctx, d.host, d.cfg.Files, func(t *task) ([]string, error) {
		names, err := t.list(driverDirs[0])
		if absent(err) {
			names, err = t.list(driverDirs[1])
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

// withLost are the GPUs that amdgpu drives, and those that it drove before.
func (d *Driver) withLost(ctx context.Context) ([]string, error) {
	addresses, err := d.addresses(ctx)
	if err != nil {
		return nil, err
	}
	for _, known := range d.knownAddresses() {
		if !slices.Contains(addresses, known) {
			addresses = append(addresses, known)
		}
	}
	slices.Sort(addresses)
	return addresses, nil
}

// knownAddresses are the GPUs that Inventory has told, in order.
func (d *Driver) knownAddresses() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Sorted(maps.Keys(d.known))
}

// ours tells whether the GPU is one that we give out; doc.go has the rule.
func (c *gpuHandle) ours() (bool, error) {
	_, err := c.stat(c.file(computeFile))
	if !absent(err) {
		return err == nil, err
	}
	top, err := c.driver.recentTopology(c.task)
	if err != nil {
		return false, err
	}
	a, err := parseAddress(c.pciAddress)
	if err != nil {
		return false, err
	}
	c.driver.mu.Lock()
	_, known := c.driver.known[c.pciAddress]
	c.driver.mu.Unlock()
	return known || slices.ContainsFunc(top.of(a), node.computes), nil
}

// computes tells whether the chip is of a generation made for computing. The
// numbers are KFD's gfx_target_version: 90008 is gfx908 (MI100), 90010 gfx90a
// (MI200), 904xx gfx94x (MI300), 905xx gfx95x (MI350).
func (n node) computes() bool {
	return n.gfx == 90008 || n.gfx == 90010 || n.gfx/100 == 904 || n.gfx/100 == 905
}

// architecture is the generation as the compiler names it: gfx942 for 90402.
func (n node) architecture() string {
	return fmt.Sprintf("gfx%d%x%x", n.gfx/10000, n.gfx/100%100, n.gfx%100)
}

// describe reads everything about a GPU.
func (c *gpuHandle) describe() (gpu.GPU, error) {
	g := gpu.GPU{PCIAddress: c.pciAddress, Vendor: gpu.AMD}
	l, err := c.look()
	if err != nil {
		return g, err
	}
	nodes := l.nodes()
	if len(nodes) == 0 {
		return g, c.withoutKFD()
	}
	g.Architecture = nodes[0].architecture()
	if g.Minor, err = c.firstMinor(); err != nil {
		return g, err
	}
	if g.DriverVersion, err = c.optional(path.Join(moduleDir, "version")); err != nil {
		return g, err
	}
	if err := c.name(&g); err != nil {
		return g, err
	}
	c.locate(&g)
	if g.PCIID, err = c.pciID("device", "vendor"); err != nil {
		return g, err
	}
	if g.PCISubsystemID, err = c.pciID("subsystem_device", "subsystem_vendor"); err != nil {
		return g, err
	}
	facts, err := c.facts(l)
	if err != nil {
		return g, err
	}
	g.Memory, g.MemoryMode = facts.Memory, string(facts.MemoryMode)
	if l.mode != "" {
		if g.Modes, err = c.modesByMemory(facts.MemoryMode, facts.Modes, l); err != nil {
			return g, err
		}
	}
	for _, names := range g.Modes {
		facts.Elsewhere = append(facts.Elsewhere, xcp.Named(names...)...)
	}
	g.Placements, g.Counters = xcp.Devices(facts)
	return g, nil
}

// pciID is what two files of the GPU say it is to the PCI bus, empty where there
// are none.
func (c *gpuHandle) pciID(device, vendor string) (string, error) {
	var numbers [2]uint16
	for i, name := range []string{device, vendor} {
		text, err := c.optional(c.file(name))
		if err != nil {
			return "", c.told(err)
		}
		n, err := strconv.ParseUint(strings.TrimPrefix(text, "0x"), 16, 16)
		if err != nil {
			return "", nil //nolint:nilerr // a machine that does not say is no error
		}
		numbers[i] = uint16(n)
	}
	return gpu.PCIIDOf(numbers[0], numbers[1]), nil
}

// name says what the GPU calls itself.
func (c *gpuHandle) name(g *gpu.GPU) error {
	var err error
	if g.UUID, err = c.uuid(); err != nil {
		return err
	}
	if g.ProductName, err = c.optional(c.file("product_name")); err != nil || g.ProductName != "" {
		return err
	}
	device, err := c.device()
	g.ProductName = chips[device].name
	return err
}

// uuid is made of the number that the GPU bears, which sysfs has for the whole
// gpu: "GPU-" and 16 hexadecimal digits, as rocminfo prints it. It is empty for GPUs
// without one.
func (c *gpuHandle) uuid() (string, error) {
	text, err := c.optional(c.file("unique_id"))
	if err != nil {
		return "", c.told(err)
	}
	id, err := strconv.ParseUint(strings.TrimPrefix(text, "0x"), 16, 64)
	if err != nil || id == 0 {
		return "", nil //nolint:nilerr // a GPU without a number, or with one that says nothing
	}
	return fmt.Sprintf("GPU-%016x", id), nil
}

// locate says where in the machine the GPU sits. A machine that does not tell
// is no error: the attributes stay empty.
func (c *gpuHandle) locate(g *gpu.GPU) {
	if text, err := c.read(c.file("numa_node")); err == nil {
		// -1 says that there is none.
		if n, err := strconv.ParseInt(text, 10, 64); err == nil && n >= 0 {
			g.NUMANode = &n
		}
	}
	place, err := c.realPath(c.file(""))
	if err != nil {
		return
	}
	for _, part := range strings.Split(place, "/") {
		if strings.HasPrefix(part, "pci") && strings.Contains(part, ":") {
			g.PCIeRoot = part
			return
		}
	}
}

// facts is what decides what the GPU offers.
func (c *gpuHandle) facts(l live) (xcp.Facts, error) {
	f := xcp.Facts{PCIAddress: c.pciAddress}
	s, err := c.shape()
	if err != nil {
		return f, err
	}
	nodes := l.nodes()
	if f.XCCs, err = c.xccs(l.mode, nodes); err != nil {
		return f, err
	}
	f.ComputeUnits = nodes[0].computeUnits * int64(len(l.partitions))
	if f.Memory, err = c.memory(s, l); err != nil {
		return f, err
	}
	if l.mode == "" {
		return f, nil // a GPU that cannot be cut
	}
	f.MemoryMode = s.memory
	if f.Modes, err = c.modes(l.mode, s.memory, nodes); err != nil {
		return f, err
	}
	told, err := c.configs(s)
	if err != nil {
		return f, err
	}
	f.Engines = told.engines
	c.driver.mu.Lock()
	defer c.driver.mu.Unlock()
	f.Seen = maps.Clone(s.seen)
	return f, nil
}

// memory is the memory of the whole GPU, and takes down that of the partitions
// that are live. The memory of an APU is the machine's: its file says that there
// is none (gmc_v9_0_mc_init in Linux' gmc_v9_0.c), and KFD alone tells.
func (c *gpuHandle) memory(s *shape, l live) (int64, error) {
	text, err := c.optional(c.file(vramTotalFile))
	if err != nil {
		return 0, c.told(err)
	}
	total, err := strconv.ParseInt(text, 10, 64)
	if text != "" && (err != nil || total < 0) {
		return 0, fmt.Errorf("GPU %s: %s says %q, which is no number of bytes", c.pciAddress, vramTotalFile, text)
	}
	partitions, all, err := c.partitionMemory(l)
	if err != nil {
		return 0, err
	}
	if total == 0 {
		// The most that was seen, so that it does not follow the mode by what is
		// lost in rounding.
		c.learn(func() { s.total = max(s.total, all); total = s.total })
	}
	if total == 0 {
		return 0, fmt.Errorf("GPU %s: neither amdgpu nor KFD say how much memory it has", c.pciAddress)
	}
	// Where the driver is told not to cap partitions (compute_partition_mem_alloc_mode),
	// each shows what it has in common with others; what it has for sure is its share.
	if l.mode != "" && len(l.missing()) == 0 && all <= total {
		c.learn(func() { s.seen[l.mode] = partitions })
	}
	return total, nil
}

// partitionMemory is what KFD says of the memory of each partition, and what that
// makes for the GPU if those without a node are like the smallest.
func (c *gpuHandle) partitionMemory(l live) (partitions []int64, all int64, err error) {
	partitions = make([]int64, len(l.partitions))
	var smallest int64
	for i, p := range l.partitions {
		if p.node == nil {
			continue
		}
		n, err := c.memoryOf(*p.node)
		if err != nil {
			return nil, 0, err
		}
		partitions[i] = n
		all += n
		if smallest == 0 || n < smallest {
			smallest = n
		}
	}
	return partitions, all + smallest*int64(len(l.missing())), nil
}
