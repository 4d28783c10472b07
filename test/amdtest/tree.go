package amdtest

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

	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware/amd/sysfs"
)

// Tree has the files of a host in memory. Writes have no side effects unless a test adds them.
type Tree struct {
	// Mu protects all of it.
	Mu sync.Mutex
	// Files has contents by path. A folder exists if it contains something, or if a path ends
	// with a slash.
	Files map[string]string
	Infos map[string]sysfs.Info
	Links map[string]string
	// Fails has errors by call: "read <path>", "write <path>", "list <path>", "stat <path>".
	Fails map[string]error
	// OnWrite is called before a write takes effect, and can refuse it.
	OnWrite func(name, text string) error
	// OnRead is called before a file is read.
	OnRead func(name string)
	Writes []string
}

var _ sysfs.Files = (*Tree)(nil)

// NewTree returns a host with these GPUs.
func NewTree(gpus ...GPU) *Tree {
	t := &Tree{Files: map[string]string{}, Infos: map[string]sysfs.Info{}, Links: map[string]string{}, Fails: map[string]error{}}
	t.Files[sysfs.DriverDirs[0]+"/"] = ""
	t.Files[sysfs.BootID] = "6c7d3b1e-0000-4000-8000-000000000001\n"
	t.Files[sysfs.ModuleDir+"/version"] = "6.16.13\n"
	t.Infos[sysfs.ModuleDir] = sysfs.Info{Mode: fs.ModeDir | 0o755, Inode: 4711}
	t.Files[sysfs.ProcessDir+"/"] = ""
	t.Files[sysfs.TopologyDir+"/generation_id"] = "1\n"
	t.Device(sysfs.KFDDevice, 239, 0, 109)
	for n := range 2 { // the processors
		t.Files[fmt.Sprintf("%s/%d/gpu_id", sysfs.NodesDir, n)] = "0\n"
		t.Files[fmt.Sprintf("%s/%d/properties", sysfs.NodesDir, n)] = "cpu_cores_count 96\nsimd_count 0\nmem_banks_count 1\ndrm_render_minor 0\n"
	}
	for _, g := range gpus {
		t.Add(g)
	}
	return t
}

// Device adds a character device.
func (t *Tree) Device(name string, major, minor, gid uint32) {
	t.Files[name] = ""
	t.Infos[name] = sysfs.Info{Mode: fs.ModeDevice | fs.ModeCharDevice | 0o660, Major: major, Minor: minor, GID: gid}
}

func (t *Tree) fail(op, name string) error {
	if err := t.Fails[op+" "+name]; err != nil {
		return &fs.PathError{Op: op, Path: name, Err: err}
	}
	return nil
}

func missing(op, name string) error { return &fs.PathError{Op: op, Path: name, Err: fs.ErrNotExist} }

// ReadFile implements sysfs.Files.
func (t *Tree) ReadFile(name string) ([]byte, error) {
	t.Mu.Lock()
	onRead := t.OnRead
	t.Mu.Unlock()
	if onRead != nil {
		onRead(name)
	}
	t.Mu.Lock()
	defer t.Mu.Unlock()
	if err := t.fail("read", name); err != nil {
		return nil, err
	}
	text, ok := t.Files[name]
	if !ok {
		return nil, missing("open", name)
	}
	return []byte(text), nil
}

// WriteFile implements sysfs.Files.
func (t *Tree) WriteFile(name string, data []byte) error {
	t.Mu.Lock()
	onWrite := t.OnWrite
	t.Writes = append(t.Writes, string(data)+" > "+name)
	err := t.fail("write", name)
	_, ok := t.Files[name]
	t.Mu.Unlock()
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
	t.Set(name, string(data)+"\n")
	return nil
}

// ReadDir implements sysfs.Files.
func (t *Tree) ReadDir(name string) ([]string, error) {
	t.Mu.Lock()
	defer t.Mu.Unlock()
	if err := t.fail("list", name); err != nil {
		return nil, err
	}
	var names []string
	found := false
	for file := range t.Files {
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

// EvalSymlinks implements sysfs.Files.
func (t *Tree) EvalSymlinks(name string) (string, error) {
	t.Mu.Lock()
	defer t.Mu.Unlock()
	if to, ok := t.Links[name]; ok {
		return to, nil
	}
	return name, nil
}

// Stat implements sysfs.Files.
func (t *Tree) Stat(name string) (sysfs.Info, error) {
	t.Mu.Lock()
	defer t.Mu.Unlock()
	if err := t.fail("stat", name); err != nil {
		return sysfs.Info{}, err
	}
	if info, ok := t.Infos[name]; ok {
		return info, nil
	}
	if _, ok := t.Files[name]; ok {
		return sysfs.Info{Mode: 0o644}, nil
	}
	for file := range t.Files {
		if strings.HasPrefix(file, name+"/") {
			return sysfs.Info{Mode: fs.ModeDir | 0o755}, nil
		}
	}
	return sysfs.Info{}, missing("stat", name)
}

// Refuse makes a call fail: "read <path>".
func (t *Tree) Refuse(call string, err error) {
	t.Mu.Lock()
	defer t.Mu.Unlock()
	t.Fails[call] = err
}

// Set changes a file.
func (t *Tree) Set(name, text string) {
	t.Mu.Lock()
	defer t.Mu.Unlock()
	t.Files[name] = text
}

// Remove removes a file with all below it.
func (t *Tree) Remove(name string) {
	t.Mu.Lock()
	defer t.Mu.Unlock()
	for file := range t.Files {
		if file == name || strings.HasPrefix(file, name+"/") {
			delete(t.Files, file)
		}
	}
	delete(t.Infos, name)
}

// GPU is a GPU as its files show it.
type GPU struct {
	Address         string
	Compute, Memory string
	Available       string
	Device          string
	VRAMMiB         int64
	First           int // render minor
	Minors          int // how many the GPU has, 8 unless told
	Nodes           []Node
}

// Node is what KFD shows of a partition.
type Node struct {
	Number, Location, Minor int
	domain                  int
	SIMD, XCCs, GFX         int
	Bytes                   int64
}

// Sizes in bytes.
const (
	MiB = int64(1) << 20
	GiB = int64(1) << 30
)

// Add adds a GPU to the host.
func (t *Tree) Add(g GPU) {
	dir := path.Join(sysfs.DevicesDir, g.Address)
	for _, d := range sysfs.DriverDirs {
		t.Files[path.Join(d, g.Address)+"/"] = ""
	}
	t.Links[dir] = "/sys/devices/pci0000:00/0000:00:01.1/" + g.Address
	for name, text := range map[string]string{
		"device": g.Device, sysfs.ComputeFile: g.Compute, sysfs.AvailableComputeFile: g.Available, sysfs.MemoryFile: g.Memory,
		"numa_node": "1", "unique_id": "e3a9f00d12345678", sysfs.VRAMTotalFile: fmt.Sprint(g.VRAMMiB * MiB),
	} {
		if text != "" {
			t.Files[path.Join(dir, name)] = text + "\n"
		}
	}
	for i := range cmp.Or(g.Minors, 8) {
		name := sysfs.RenderName(g.First + i)
		place := path.Join(sysfs.PlatformDir, fmt.Sprintf("amdgpu_xcp_%d", g.First+i-128))
		if i == 0 {
			place = dir
		}
		t.Files[path.Join(place, "drm", name, "dev")] = fmt.Sprintf("226:%d\n", g.First+i)
		t.Device(path.Join(sysfs.RenderDir, name), 226, uint32(g.First+i), 109)
	}
	for _, n := range g.Nodes {
		t.node(n)
	}
}

func (t *Tree) node(n Node) {
	dir := fmt.Sprintf("%s/%d", sysfs.NodesDir, n.Number)
	t.Files[dir+"/gpu_id"] = fmt.Sprintf("%d\n", 24000+n.Number)
	t.Files[dir+"/properties"] = fmt.Sprintf("cpu_cores_count 0\nsimd_count %d\nmem_banks_count 1\nsimd_per_cu 4\ngfx_target_version %d\nvendor_id 4098\nlocation_id %d\ndomain %d\ndrm_render_minor %d\nunique_id 16404946649897475633\nnum_xcc %d\n",
		n.SIMD, n.GFX, n.Location, n.domain, n.Minor, n.XCCs)
	t.Files[dir+"/mem_banks/0/properties"] = fmt.Sprintf("heap_type 1\nsize_in_bytes %d\nflags 0\nwidth 8192\nmem_clk_max 1300\n", n.Bytes)
}

// MI300XCPX is an MI300X in CPX as ROCm/k8s-device-plugin
// testdata/topo-mi300-cpx shows it: location_id 1280 to 1287, one XCC and 152
// SIMDs each. What NPS1 makes of the memory is calculated.
func MI300XCPX() GPU {
	g := GPU{
		Address: "0000:05:00.0", Compute: "CPX", Memory: "NPS1", Available: "SPX, DPX, QPX, CPX", Device: "0x74a1", VRAMMiB: 196592, First: 128,
	}
	for i := range 8 {
		g.Nodes = append(g.Nodes, Node{Number: 2 + i, Location: 1280 + i, Minor: 128 + i, SIMD: 152, XCCs: 1, GFX: 90402, Bytes: 24574 * MiB})
	}
	return g
}

// MI300XSPX is the same GPU in one piece: k8s-gpu-dra-driver docs/demo.md has
// 1216 SIMDs and 196592 MiB.
func MI300XSPX() GPU {
	g := MI300XCPX()
	g.Compute = "SPX"
	g.Nodes = []Node{{Number: 2, Location: 1280, Minor: 128, SIMD: 1216, XCCs: 8, GFX: 90402, Bytes: 196592 * MiB}}
	return g
}

// MI300XDPX is https://github.com/ROCm/k8s-gpu-dra-driver/issues/20: 608 SIMDs and
// 103070826496 bytes in each half.
func MI300XDPX() GPU {
	g := MI300XCPX()
	g.Compute = "DPX"
	g.Nodes = nil
	for i := range 2 {
		g.Nodes = append(g.Nodes, Node{Number: 2 + i, Location: 1280 + i, Minor: 128 + i, SIMD: 608, XCCs: 4, GFX: 90402, Bytes: 103070826496})
	}
	return g
}

// MI308XCPX is a GPU of ROCm/k8s-device-plugin testdata/topology-parsing-mi308:
// four partitions under NPS4, the last 16 MiB smaller, and eight render nodes.
func MI308XCPX(domain, first int) GPU {
	g := GPU{
		Address: fmt.Sprintf("%04x:0a:00.0", domain), Compute: "CPX", Memory: "NPS4", Available: "CPX", Device: "0x74a2", VRAMMiB: 196592, First: first,
	}
	for i := range 4 {
		bytes := int64(51539607552)
		if i == 3 {
			bytes = 51522830336
		}
		g.Nodes = append(g.Nodes, Node{Number: first - 128 + 2 + i, domain: domain, Location: 2560 + i, Minor: first + i, SIMD: 80, XCCs: 1, GFX: 90402, Bytes: bytes})
	}
	return g
}

// MI350XSPX is the KFD node of ROCm/rocm-systems projects/rocprofiler-sdk,
// tests/data/topology/nodes/5; where it sits on the bus is made up.
func MI350XSPX() GPU {
	return GPU{
		Address: "0000:75:00.0", Compute: "SPX", Memory: "NPS1", Available: "SPX, DPX, QPX, CPX", Device: "0x75a0", VRAMMiB: 294896, First: 128,
		Nodes: []Node{{Number: 5, Location: 0x7500, Minor: 128, SIMD: 1024, XCCs: 8, GFX: 90500, Bytes: 309220868096}},
	}
}

// Replace shows another state of a GPU, as a switch does: with new nodes.
func (t *Tree) Replace(g GPU) {
	t.Mu.Lock()
	defer t.Mu.Unlock()
	for file := range t.Files {
		if strings.HasPrefix(file, sysfs.NodesDir+"/") && !strings.HasPrefix(file, sysfs.NodesDir+"/0/") && !strings.HasPrefix(file, sysfs.NodesDir+"/1/") {
			delete(t.Files, file)
		}
	}
	t.Files[sysfs.TopologyDir+"/generation_id"] += "1"
	t.Add(g)
}

// Placement finds a placement of a GPU by the end of its name, "" for the whole GPU.
func Placement(t *testing.T, g gpu.GPU, end string) gpu.Placement {
	t.Helper()
	name := g.Name()
	if end != "" {
		name += "-" + end
	}
	p, ok := g.Placement(name)
	require.True(t, ok, name)
	return p
}

// Broken gives the error of one GPU of an inventory.
func Broken(t *testing.T, err error, address string) error {
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
