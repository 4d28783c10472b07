package sysfs

import (
	"errors"
	"fmt"
	"path"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Node is a GPU node of KFD's topology: a whole GPU, or a partition of one.
// Its number, gpuID and minor are good until the next switch of any GPU.
type Node struct {
	Number int
	GPUID  string
	// Minor is that of the render node, /dev/dri/renderD<minor>.
	Minor            int
	domain, location uint64
	// ComputeUnits and xccs are those of the node.
	ComputeUnits int64
	XCCs         int
	GFX          int
	device       uint64
	banks        int
	// Hive is the number of the GPUs that are joined by XGMI, zero for a GPU that
	// is alone.
	Hive uint64
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
// what has no render node and cannot be allocated. They are also false for a node
// in the making: KFD counts it and shows it before it has filled in all of it
// (kfd_topology_add_device in Linux' kfd_topology.c).
func (p properties) node(number int, gpuID string) (Node, bool) {
	perCU := p.number("simd_per_cu")
	minor := p.number("drm_render_minor")
	if p.number("simd_count") == 0 || perCU == 0 || minor == 0 {
		return Node{}, false
	}
	// Older kernels do not have this one, but none of them counts zero.
	if n, ok := p["num_xcc"]; ok && n == 0 {
		return Node{}, false
	}
	return Node{
		Number: number,
		GPUID:  gpuID,
		Minor:  minor,
		domain: p["domain"], location: p["location_id"],
		// Not cu_per_simd_array times array_count, which counts what is fused off.
		ComputeUnits: int64(p.number("simd_count") / perCU),
		XCCs:         max(p.number("num_xcc"), 1),
		GFX:          p.number("gfx_target_version"),
		device:       p["device_id"],
		banks:        p.number("mem_banks_count"),
		Hive:         p["hive_id"],
	}, true
}

// ReadNode reads the node with a number; false says that it is no GPU that can be used.
func ReadNode(t *Task, number int) (Node, bool, error) {
	dir := path.Join(NodesDir, strconv.Itoa(number))
	gpuID, err := t.Read(path.Join(dir, "gpu_id"))
	if err != nil {
		return Node{}, false, hiddenNode(err)
	}
	if gpuID == "0" {
		return Node{}, false, nil // a processor
	}
	text, err := t.Read(path.Join(dir, "properties"))
	if err != nil {
		return Node{}, false, hiddenNode(err)
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

// Memory is the memory of a node in bytes. heap_type 1 and 2 are that of the
// GPU (HSA_MEM_HEAP_TYPE in Linux' kfd_crat.h).
func (n Node) Memory(t *Task) (int64, error) {
	var sum uint64
	for bank := range n.banks {
		text, err := t.Read(path.Join(NodesDir, strconv.Itoa(n.Number), "mem_banks", strconv.Itoa(bank), "properties"))
		if err != nil {
			return 0, err
		}
		p := parseProperties(text)
		if heap := p["heap_type"]; heap == 1 || heap == 2 {
			sum += p["size_in_bytes"]
		}
	}
	if sum > 1<<62 {
		return 0, fmt.Errorf("%s: KFD node %d has %d bytes of memory, which cannot be", t.Subject(), n.Number, sum)
	}
	return int64(sum), nil
}

// Computes reports whether the chip is of a generation made for computing. The
// numbers are KFD's gfx_target_version: 90008 is gfx908 (MI100), 90010 gfx90a
// (MI200), 904xx gfx94x (MI300), 905xx gfx95x (MI350).
func (n Node) Computes() bool {
	return n.GFX == 90008 || n.GFX == 90010 || n.GFX/100 == 904 || n.GFX/100 == 905
}

// Architecture is the generation as the compiler names it: gfx942 for 90402.
func (n Node) Architecture() string {
	return fmt.Sprintf("gfx%d%x%x", n.GFX/10000, n.GFX/100%100, n.GFX%100)
}
