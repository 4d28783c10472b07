package amd

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// The files of KFD, the compute part of the driver.
const (
	kfdDir      = "/sys/class/kfd/kfd"
	topologyDir = kfdDir + "/topology"
	nodesDir    = topologyDir + "/nodes"
	processDir  = kfdDir + "/proc"
)

// topologyTries is how often a topology that changes under our eyes is read.
const topologyTries = 20

// node is a GPU node of KFD's topology: a whole GPU, or a partition of one.
// Its number, gpuID and minor are good until the next switch of any GPU.
type node struct {
	number int
	gpuID  string
	// minor is that of the render node, /dev/dri/renderD<minor>.
	minor            int
	domain, location uint64
	// computeUnits and xccs are those of the node.
	computeUnits int64
	xccs         int
	gfx          int
	device       uint64
	banks        int
	// hive is the number of the GPUs that are joined by XGMI, zero for a GPU that
	// is alone.
	hive uint64
}

// topology is KFD's GPU nodes at one moment.
type topology struct {
	// generation is KFD's own number of the state. Every node that comes or goes
	// changes it.
	generation string
	nodes      []node
}

// properties is a file of KFD's topology: a name and a number on each line.
type properties map[string]uint64

// parseProperties leaves out the lines that it does not understand: names come
// and go with versions.
func parseProperties(text string) properties {
	p := properties{}
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) != 2 {
			continue
		}
		if n, err := strconv.ParseUint(fields[1], 10, 64); err == nil {
			p[fields[0]] = n
		}
	}
	return p
}

// number is a property that counts something, zero when it is absent or absurd.
func (p properties) number(name string) int {
	if n := p[name]; n < 1<<31 {
		return int(n)
	}
	return 0
}

// node reads the properties of a GPU. They are false for processors, and for
// what has no render node and cannot be given out. They are also false for a node
// in the making: KFD counts it and shows it before it has filled in all of it
// (kfd_topology_add_device in Linux' kfd_topology.c).
func (p properties) node(number int, gpuID string) (node, bool) {
	perCU := p.number("simd_per_cu")
	minor := p.number("drm_render_minor")
	if p.number("simd_count") == 0 || perCU == 0 || minor == 0 {
		return node{}, false
	}
	// Older kernels do not have this one, but none of them counts zero.
	if n, ok := p["num_xcc"]; ok && n == 0 {
		return node{}, false
	}
	return node{
		number: number,
		gpuID:  gpuID,
		minor:  minor,
		domain: p["domain"], location: p["location_id"],
		// Not cu_per_simd_array times array_count, which counts what is fused off.
		computeUnits: int64(p.number("simd_count") / perCU),
		xccs:         max(p.number("num_xcc"), 1),
		gfx:          p.number("gfx_target_version"),
		device:       p["device_id"],
		banks:        p.number("mem_banks_count"),
		hive:         p["hive_id"],
	}, true
}

// freshTopology reads all nodes, again if they change meanwhile.
func (t *task) freshTopology() (*topology, error) {
	for range topologyTries {
		before, err := t.generation()
		if absent(err) {
			return &topology{}, nil // amdgpu without KFD, as for graphics alone
		}
		if err != nil {
			return nil, err
		}
		nodes, err := t.nodes()
		if err != nil {
			return nil, err
		}
		after, err := t.generation()
		if err != nil {
			return nil, err
		}
		if before == after {
			return &topology{generation: after, nodes: nodes}, nil
		}
	}
	return nil, fmt.Errorf("%s: KFD's topology changes faster than it can be read", t.Subject())
}

// generation changes with every node that comes or goes (kfd_topology_add_device
// and kfd_topology_remove_device in Linux' kfd_topology.c). It counts from the load of
// the driver on, which is told by the folder's inode.
func (t *task) generation() (string, error) {
	count, err := t.read(path.Join(topologyDir, "generation_id"))
	if err != nil {
		return "", err
	}
	info, err := t.stat(topologyDir)
	return fmt.Sprintf("%s/%d", count, info.Inode), err
}

func (t *task) nodes() ([]node, error) {
	names, err := t.list(nodesDir)
	if err != nil {
		return nil, err
	}
	var nodes []node
	for _, name := range names {
		number, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		n, ok, err := t.node(number)
		if absent(err) {
			continue // it went while we looked; the generation tells
		}
		if err != nil {
			return nil, err
		}
		if ok {
			nodes = append(nodes, n)
		}
	}
	slices.SortFunc(nodes, func(a, b node) int { return a.number - b.number })
	return nodes, nil
}

func (t *task) node(number int) (node, bool, error) {
	dir := path.Join(nodesDir, strconv.Itoa(number))
	gpuID, err := t.read(path.Join(dir, "gpu_id"))
	if err != nil {
		return node{}, false, hiddenNode(err)
	}
	if gpuID == "0" {
		return node{}, false, nil // a processor
	}
	text, err := t.read(path.Join(dir, "properties"))
	if err != nil {
		return node{}, false, hiddenNode(err)
	}
	n, ok := parseProperties(text).node(number, gpuID)
	return n, ok, nil
}

// hiddenNode explains EPERM, by which KFD hides nodes from containers that may
// not use their render nodes (kfd_devcgroup_check_permission).
func hiddenNode(err error) error {
	if errors.Is(err, unix.EPERM) {
		return fmt.Errorf("%w (KFD hides nodes from containers without their devices: the plugin must be privileged)", err)
	}
	return err
}

// memoryOf is the memory of a node in bytes. heap_type 1 and 2 are that of the
// GPU (HSA_MEM_HEAP_TYPE in Linux' kfd_crat.h).
func (t *task) memoryOf(n node) (int64, error) {
	var sum uint64
	for bank := range n.banks {
		text, err := t.read(path.Join(nodesDir, strconv.Itoa(n.number), "mem_banks", strconv.Itoa(bank), "properties"))
		if err != nil {
			return 0, err
		}
		p := parseProperties(text)
		if heap := p["heap_type"]; heap == 1 || heap == 2 {
			sum += p["size_in_bytes"]
		}
	}
	if sum > 1<<62 {
		return 0, fmt.Errorf("%s: KFD node %d has %d bytes of memory, which cannot be", t.Subject(), n.number, sum)
	}
	return int64(sum), nil
}

// recentTopology is the last topology, read again if KFD says that it changed.
func (d *Driver) recentTopology(t *task) (*topology, error) {
	generation, err := t.generation()
	if err != nil && !absent(err) {
		return nil, err
	}
	d.mu.Lock()
	last := d.topology
	d.mu.Unlock()
	if last != nil && last.generation == generation {
		return last, nil
	}
	return d.readTopology(t)
}

// readTopology reads the topology and keeps it for recentTopology.
func (d *Driver) readTopology(t *task) (*topology, error) {
	fresh, err := t.freshTopology()
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.topology = fresh
	return fresh, nil
}
