package amd

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/pkg/gpu"
)

// tree is a host's files in memory. It reacts to nothing unless a test says so.
type tree struct {
	// mu protects all of it.
	mu sync.Mutex
	// files are contents by path; a folder is there when something is in it, or
	// when a path ends with a slash.
	files map[string]string
	infos map[string]Info
	links map[string]string
	// fails are errors by "read <path>", "write <path>", "list <path>".
	fails map[string]error
	// onWrite is asked before a write takes effect.
	onWrite func(name, text string) error
	// onRead is told before a file is read.
	onRead func(name string)
	writes []string
}

var _ Files = (*tree)(nil)

func newTree() *tree {
	t := &tree{files: map[string]string{}, infos: map[string]Info{}, links: map[string]string{}, fails: map[string]error{}}
	t.files[driverDirs[0]+"/"] = ""
	t.files[bootID] = "6c7d3b1e-0000-4000-8000-000000000001\n"
	t.files[moduleDir+"/version"] = "6.16.13\n"
	t.infos[moduleDir] = Info{Mode: fs.ModeDir | 0o755, Inode: 4711}
	t.files[processDir+"/"] = ""
	t.files[topologyDir+"/generation_id"] = "1\n"
	t.device(kfdDevice, 239, 0, 109)
	for n := range 2 { // the processors
		t.files[fmt.Sprintf("%s/%d/gpu_id", nodesDir, n)] = "0\n"
		t.files[fmt.Sprintf("%s/%d/properties", nodesDir, n)] = "cpu_cores_count 96\nsimd_count 0\nmem_banks_count 1\ndrm_render_minor 0\n"
	}
	return t
}

func (t *tree) device(name string, major, minor, gid uint32) {
	t.files[name] = ""
	t.infos[name] = Info{Mode: fs.ModeDevice | fs.ModeCharDevice | 0o660, Major: major, Minor: minor, GID: gid}
}

func (t *tree) fail(op, name string) error {
	if err := t.fails[op+" "+name]; err != nil {
		return &fs.PathError{Op: op, Path: name, Err: err}
	}
	return nil
}

func missing(op, name string) error { return &fs.PathError{Op: op, Path: name, Err: fs.ErrNotExist} }

func (t *tree) ReadFile(name string) ([]byte, error) {
	t.mu.Lock()
	onRead := t.onRead
	t.mu.Unlock()
	if onRead != nil {
		onRead(name)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.fail("read", name); err != nil {
		return nil, err
	}
	text, ok := t.files[name]
	if !ok {
		return nil, missing("open", name)
	}
	return []byte(text), nil
}

func (t *tree) WriteFile(name string, data []byte) error {
	t.mu.Lock()
	onWrite := t.onWrite
	t.writes = append(t.writes, string(data)+" > "+name)
	err := t.fail("write", name)
	_, ok := t.files[name]
	t.mu.Unlock()
	switch {
	case err != nil:
		return err
	case !ok:
		return missing("open", name)
	case onWrite != nil:
		if err := onWrite(name, string(data)); err != nil {
			return &fs.PathError{Op: "write", Path: name, Err: err}
		}
	}
	t.set(name, string(data)+"\n")
	return nil
}

func (t *tree) ReadDir(name string) ([]string, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.fail("list", name); err != nil {
		return nil, err
	}
	var names []string
	found := false
	for file := range t.files {
		rest, ok := strings.CutPrefix(file, name+"/")
		if !ok {
			continue
		}
		found = true
		if first, _, _ := strings.Cut(rest, "/"); first != "" && !slices.Contains(names, first) {
			names = append(names, first)
		}
	}
	if !found {
		return nil, missing("open", name)
	}
	slices.Sort(names)
	return names, nil
}

func (t *tree) EvalSymlinks(name string) (string, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if to, ok := t.links[name]; ok {
		return to, nil
	}
	return name, nil
}

func (t *tree) Stat(name string) (Info, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.fail("stat", name); err != nil {
		return Info{}, err
	}
	if info, ok := t.infos[name]; ok {
		return info, nil
	}
	if _, ok := t.files[name]; ok {
		return Info{Mode: 0o644}, nil
	}
	for file := range t.files {
		if strings.HasPrefix(file, name+"/") {
			return Info{Mode: fs.ModeDir | 0o755}, nil
		}
	}
	return Info{}, missing("stat", name)
}

// refuse makes a call fail: "read <path>".
func (t *tree) refuse(call string, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.fails[call] = err
}

// set changes a file, and remove removes one with all below it.
func (t *tree) set(name, text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.files[name] = text
}

func (t *tree) remove(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for file := range t.files {
		if file == name || strings.HasPrefix(file, name+"/") {
			delete(t.files, file)
		}
	}
	delete(t.infos, name)
}

// paperGPU is a GPU as its files show it.
type paperGPU struct {
	address         string
	compute, memory string
	available       string
	device          string
	vramMiB         int64
	first           int // render minor
	minors          int // how many the GPU has, 8 unless told
	nodes           []paperNode
}

// paperNode is what KFD shows of a partition.
type paperNode struct {
	number, location, minor int
	domain                  int
	simd, xccs, gfx         int
	bytes                   int64
}

// gib and mib count bytes.
const (
	mib = int64(1) << 20
	gib = int64(1) << 30
)

func (t *tree) add(c paperGPU) {
	dir := path.Join(devicesDir, c.address)
	for _, d := range driverDirs {
		t.files[path.Join(d, c.address)+"/"] = ""
	}
	t.links[dir] = "/sys/devices/pci0000:00/0000:00:01.1/" + c.address
	for name, text := range map[string]string{
		"device": c.device, computeFile: c.compute, availableComputeFile: c.available, memoryFile: c.memory,
		"numa_node": "1", "unique_id": "e3a9f00d12345678", vramTotalFile: fmt.Sprint(c.vramMiB * mib),
	} {
		if text != "" {
			t.files[path.Join(dir, name)] = text + "\n"
		}
	}
	for i := range cmp.Or(c.minors, 8) {
		name := renderName(c.first + i)
		place := path.Join(platformDir, fmt.Sprintf("amdgpu_xcp_%d", c.first+i-128))
		if i == 0 {
			place = dir
		}
		t.files[path.Join(place, "drm", name, "dev")] = fmt.Sprintf("226:%d\n", c.first+i)
		t.device(path.Join(renderDir, name), 226, uint32(c.first+i), 109)
	}
	for _, n := range c.nodes {
		t.node(c, n)
	}
}

func (t *tree) node(c paperGPU, n paperNode) {
	dir := fmt.Sprintf("%s/%d", nodesDir, n.number)
	t.files[dir+"/gpu_id"] = fmt.Sprintf("%d\n", 24000+n.number)
	t.files[dir+"/properties"] = fmt.Sprintf("cpu_cores_count 0\nsimd_count %d\nmem_banks_count 1\nsimd_per_cu 4\ngfx_target_version %d\nvendor_id 4098\nlocation_id %d\ndomain %d\ndrm_render_minor %d\nunique_id 16404946649897475633\nnum_xcc %d\n",
		n.simd, n.gfx, n.location, n.domain, n.minor, n.xccs)
	t.files[dir+"/mem_banks/0/properties"] = fmt.Sprintf("heap_type 1\nsize_in_bytes %d\nflags 0\nwidth 8192\nmem_clk_max 1300\n", n.bytes)
}

// mi300xCPX is an MI300X in CPX as ROCm/k8s-device-plugin
// testdata/topo-mi300-cpx shows it: location_id 1280 to 1287, one XCC and 152
// SIMDs each. What NPS1 makes of the memory is calculated.
func mi300xCPX() paperGPU {
	c := paperGPU{
		address: "0000:05:00.0", compute: "CPX", memory: "NPS1", available: "SPX, DPX, QPX, CPX", device: "0x74a1", vramMiB: 196592, first: 128,
	}
	for i := range 8 {
		c.nodes = append(c.nodes, paperNode{number: 2 + i, location: 1280 + i, minor: 128 + i, simd: 152, xccs: 1, gfx: 90402, bytes: 24574 * mib})
	}
	return c
}

// mi300xSPX is the same GPU in one piece: k8s-gpu-dra-driver docs/demo.md has
// 1216 SIMDs and 196592 MiB.
func mi300xSPX() paperGPU {
	c := mi300xCPX()
	c.compute = "SPX"
	c.nodes = []paperNode{{number: 2, location: 1280, minor: 128, simd: 1216, xccs: 8, gfx: 90402, bytes: 196592 * mib}}
	return c
}

// mi300xDPX is https://github.com/ROCm/k8s-gpu-dra-driver/issues/20: 608 SIMDs and
// 103070826496 bytes in each half.
func mi300xDPX() paperGPU {
	c := mi300xCPX()
	c.compute = "DPX"
	c.nodes = nil
	for i := range 2 {
		c.nodes = append(c.nodes, paperNode{number: 2 + i, location: 1280 + i, minor: 128 + i, simd: 608, xccs: 4, gfx: 90402, bytes: 103070826496})
	}
	return c
}

// mi308xCPX is a GPU of ROCm/k8s-device-plugin testdata/topology-parsing-mi308:
// four partitions under NPS4, the last 16 MiB smaller, and eight render nodes.
func mi308xCPX(domain, first int) paperGPU {
	c := paperGPU{
		address: fmt.Sprintf("%04x:0a:00.0", domain), compute: "CPX", memory: "NPS4", available: "CPX", device: "0x74a2", vramMiB: 196592, first: first,
	}
	for i := range 4 {
		bytes := int64(51539607552)
		if i == 3 {
			bytes = 51522830336
		}
		c.nodes = append(c.nodes, paperNode{number: first - 128 + 2 + i, domain: domain, location: 2560 + i, minor: first + i, simd: 80, xccs: 1, gfx: 90402, bytes: bytes})
	}
	return c
}

// mi350xSPX is the KFD node of ROCm/rocm-systems projects/rocprofiler-sdk,
// tests/data/topology/nodes/5; where it sits on the bus is made up.
func mi350xSPX() paperGPU {
	return paperGPU{
		address: "0000:75:00.0", compute: "SPX", memory: "NPS1", available: "SPX, DPX, QPX, CPX", device: "0x75a0", vramMiB: 294896, first: 128,
		nodes: []paperNode{{number: 5, location: 0x7500, minor: 128, simd: 1024, xccs: 8, gfx: 90500, bytes: 309220868096}},
	}
}

// onPaper is a driver on a machine of these GPUs.
func onPaper(t *testing.T, gpus ...paperGPU) (*tree, *Driver) {
	t.Helper()
	files := newTree()
	for _, c := range gpus {
		files.add(c)
	}
	return files, driverOn(t, files)
}

func driverOn(t *testing.T, files Files) *Driver {
	t.Helper()
	d, err := New(Config{Files: files, BusyPatience: time.Millisecond})
	require.NoError(t, err)
	return d
}

// replace shows another state of a GPU, as a switch does: with new nodes.
func (t *tree) replace(c paperGPU) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for file := range t.files {
		if strings.HasPrefix(file, nodesDir+"/") && !strings.HasPrefix(file, nodesDir+"/0/") && !strings.HasPrefix(file, nodesDir+"/1/") {
			delete(t.files, file)
		}
	}
	t.files[topologyDir+"/generation_id"] += "1"
	t.add(c)
}

func inventoryOf(t *testing.T, d *Driver) []gpu.GPU {
	t.Helper()
	gpus, err := d.Inventory(t.Context())
	require.NoError(t, err)
	return gpus
}

func placement(t *testing.T, g gpu.GPU, end string) gpu.Placement {
	t.Helper()
	name := g.Name()
	if end != "" {
		name += "-" + end
	}
	p, ok := g.Placement(name)
	require.True(t, ok, name)
	return p
}

// broken gives the error of one GPU of an inventory.
func broken(t *testing.T, err error, address string) error {
	t.Helper()
	var all *gpu.InventoryError
	require.ErrorAs(t, err, &all)
	for _, c := range all.GPUs {
		if c.PCIAddress == address {
			return c
		}
	}
	require.Fail(t, "no error of GPU "+address, "%v", err)
	return errors.New("unreachable")
}
