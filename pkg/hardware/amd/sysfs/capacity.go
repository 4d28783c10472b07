package sysfs

import (
	"cmp"
	"fmt"
	"strconv"

	"github.com/tranche-dev/tranche/pkg/hardware/xcp"
)

// capacity is what a GPU has, as long as the driver is loaded and the memory mode is the same.
type capacity struct {
	load   string
	memory xcp.MemoryMode
	// xccs is zero until it is known.
	xccs int
	// total is the memory in bytes, for GPUs of which only KFD reports it.
	total int64
	// configs is nil until it is known.
	configs *configs
	// seen is the memory of each partition, in bytes, for modes that the GPU was in.
	seen map[xcp.Mode][]int64
}

// capacity is what is known of the GPU.
func (c *GPU) capacity() (*capacity, error) {
	load, err := LoadID(c.Task)
	if err != nil {
		return nil, err
	}
	memory, err := c.MemoryMode()
	if err != nil {
		return nil, err
	}
	c.machine.mu.Lock()
	defer c.machine.mu.Unlock()
	s := c.machine.capacities[c.PCIAddress]
	if s == nil || s.load != load || s.memory != memory {
		s = &capacity{load: load, memory: memory, seen: map[xcp.Mode][]int64{}}
		c.machine.capacities[c.PCIAddress] = s
	}
	return s, nil
}

// xccs is the number of XCCs of the GPU. It comes from the first of these that has it: KFD,
// if the mode has a fixed number of partitions; the table of chips; the driver's description
// of the modes; the sum of KFD's nodes, which is too low if a node is missing.
func (c *GPU) xccs(mode xcp.Mode, nodes []Node) (int, error) {
	s, err := c.capacity()
	if err != nil {
		return 0, err
	}
	c.machine.mu.Lock()
	known := s.xccs
	c.machine.mu.Unlock()
	if known > 0 {
		return known, nil
	}
	if n := partitionsOf(cmp.Or(mode, xcp.SPX)); n > 0 && len(nodes) > 0 {
		known = nodes[0].XCCs * n
	} else if known, err = c.xccsOfChip(s); err != nil {
		return 0, err
	}
	if known > 0 {
		c.learn(func() { s.xccs = known })
		return known, nil
	}
	if len(nodes) == 0 {
		return 0, c.WithoutKFD()
	}
	sum := 0
	for _, n := range nodes {
		sum += n.XCCs
	}
	return sum, nil
}

func (c *GPU) xccsOfChip(s *capacity) (int, error) {
	device, err := c.device()
	if err != nil {
		return 0, err
	}
	if product, _, ok := xcp.ProductOf(device); ok {
		return product.XCCs, nil
	}
	return c.configs(s).xccs, nil
}

// partitionsOf is the number of partitions of a mode that does not depend on the
// chip.
func partitionsOf(mode xcp.Mode) int {
	return map[xcp.Mode]int{xcp.SPX: 1, xcp.DPX: 2, xcp.TPX: 3, xcp.QPX: 4}[mode]
}

// memory is the memory of the whole GPU, and takes down that of the partitions
// that are live. The memory of an APU is the machine's: its file says that there
// is none (gmc_v9_0_mc_init in Linux' gmc_v9_0.c), and only KFD reports it.
func (c *GPU) memory(s *capacity, l Live) (int64, error) {
	text, err := c.ReadOptional(c.File(VRAMTotalFile))
	if err != nil {
		return 0, c.Explain(err)
	}
	total, err := strconv.ParseInt(text, 10, 64)
	if text != "" && (err != nil || total < 0) {
		return 0, fmt.Errorf("GPU %s: %s says %q, which is not a number of bytes", c.PCIAddress, VRAMTotalFile, text)
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
		return 0, fmt.Errorf("GPU %s: neither amdgpu nor KFD say how much memory it has", c.PCIAddress)
	}
	// Where the driver is told not to cap partitions (compute_partition_mem_alloc_mode),
	// each shows what it has in common with others; what it has for sure is its share.
	if l.Mode != "" && len(l.Missing()) == 0 && all <= total {
		c.learn(func() { s.seen[l.Mode] = partitions })
	}
	return total, nil
}

// partitionMemory is what KFD says of the memory of each partition, and what that
// makes for the GPU if those without a node are like the smallest.
func (c *GPU) partitionMemory(l Live) (partitions []int64, all int64, err error) {
	partitions = make([]int64, len(l.Partitions))
	var smallest int64
	for i, p := range l.Partitions {
		if p.Node == nil {
			continue
		}
		n, err := p.Node.Memory(c.Task)
		if err != nil {
			return nil, 0, err
		}
		partitions[i] = n
		all += n
		if smallest == 0 || n < smallest {
			smallest = n
		}
	}
	return partitions, all + smallest*int64(len(l.Missing())), nil
}
