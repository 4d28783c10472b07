package amd_test

import (
	"cmp"
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware/amd"
	"github.com/tranche-dev/tranche/pkg/hardware/amd/sysfs"
	"github.com/tranche-dev/tranche/pkg/hardware/kmod"
	"github.com/tranche-dev/tranche/pkg/publish/models"
	"github.com/tranche-dev/tranche/test/simulator/amdgpu"
	"github.com/tranche-dev/tranche/test/simulator/memory"
)

// machine is a simulated node with a driver on it.
type machine struct {
	*amd.Driver
	t         *testing.T
	inventory *models.Inventory
	root      string
	files     *counted
	// module is set on a machine whose driver may be reloaded. whileOut is called
	// before it is loaded again, onReload afterwards.
	module             *kmod.Module
	whileOut, onReload func()
	// patience is how long a GPU, or the driver, in use is waited for; zero: briefly.
	patience time.Duration
	// comeBack is how long GPUs are waited for after a load; zero: for as long as it
	// takes.
	comeBack time.Duration
}

// waits makes the driver wait for a GPU in use for as long as it takes.
func (m *machine) waits() {
	m.t.Helper()
	m.patience = time.Minute
	m.restart()
}

// counted takes down the writes of compute modes.
type counted struct {
	sysfs.Files
	mu     sync.Mutex
	writes []string
	// onWrite is called when a write begins, onRead after a read.
	onWrite func()
	onRead  func(name string)
}

func (c *counted) ReadFile(name string) ([]byte, error) {
	data, err := c.Files.ReadFile(name)
	c.mu.Lock()
	onRead := c.onRead
	c.mu.Unlock()
	if onRead != nil {
		onRead(name)
	}
	return data, err
}

func (c *counted) WriteFile(name string, data []byte) error {
	if strings.HasSuffix(name, computeFile) {
		c.mu.Lock()
		c.writes = append(c.writes, string(data))
		if c.onWrite != nil {
			c.onWrite()
		}
		c.mu.Unlock()
	}
	return c.Files.WriteFile(name, data)
}

// switches is how often a mode was written since the last call.
func (m *machine) switches() []string {
	m.files.mu.Lock()
	defer m.files.mu.Unlock()
	writes := m.files.writes
	m.files.writes = nil
	return writes
}

// simulated starts a machine with one of the simulator's inventories, altered by
// change.
func simulated(t *testing.T, name string, change ...func(*models.Inventory)) *machine {
	t.Helper()
	inv, err := models.LoadInventory(name)
	require.NoError(t, err)
	inv.AMDDriver.Delays = models.AMDDelays{}
	for _, f := range change {
		f(inv)
	}
	m := &machine{t: t, inventory: inv, root: memory.TempDir(t)}
	kernel, err := amdgpu.New(inv, amdgpu.Options{Root: m.root, Seed: "node", Sleep: func(time.Duration) {}, Logf: t.Logf})
	require.NoError(t, err)
	m.files = &counted{Files: kernel}
	m.restart()
	return m
}

// restart is a new process of the plugin.
func (m *machine) restart() {
	m.t.Helper()
	cfg := amd.Config{Files: m.files, Groups: m.files.Files.(*amdgpu.Kernel).Groups(), HostDevRoot: m.root, BusyPatience: cmp.Or(m.patience, 300*time.Millisecond), ReloadPatience: cmp.Or(m.comeBack, time.Minute)}
	if m.module != nil {
		cfg.Reload = m.reload
	}
	var err error
	m.Driver, err = amd.New(cfg)
	require.NoError(m.t, err)
	require.NoError(m.t, m.Open(m.t.Context()))
}

func (m *machine) reload(ctx context.Context) error {
	module, kernel := *m.module, m.files.Files.(*amdgpu.Kernel)
	module.Run = func(ctx context.Context, program string, args ...string) ([]byte, error) {
		if args[0] != "-r" && m.whileOut != nil {
			m.whileOut()
		}
		return kernel.Modprobe(ctx, program, args...)
	}
	err := module.Reload(ctx)
	if m.onReload != nil {
		m.onReload()
	}
	return err
}

func (m *machine) faults(f amdgpu.Faults) {
	m.t.Helper()
	require.NoError(m.t, amdgpu.SetFaults(m.root, f))
}

func (m *machine) gpus() []gpu.GPU {
	m.t.Helper()
	gpus, err := m.Inventory(m.t.Context())
	require.NoError(m.t, err)
	return gpus
}

func (m *machine) create(p gpu.Placement) gpu.Partition {
	m.t.Helper()
	part, err := m.Create(m.t.Context(), p)
	require.NoError(m.t, err, p.Name())
	return part
}

// nodes are the device nodes that a container gets.
func (m *machine) nodes(p gpu.Placement) []string {
	m.t.Helper()
	edits, err := m.Edits(m.t.Context(), p)
	require.NoError(m.t, err, p.Name())
	var names []string
	for _, n := range edits.DeviceNodes {
		names = append(names, n.Path)
	}
	return names
}

// first is the first GPU of mi300x8.
const first = "0000:05:00.0"

func xcpOf(gpuID, profile string, index int) gpu.Placement {
	return gpu.Placement{GPU: gpuID, Type: gpu.TypeXCP, Profile: profile, Start: index}
}

func whole(gpuID string) gpu.Placement {
	return gpu.Placement{GPU: gpuID, Type: gpu.TypeGPU, Profile: "spx"}
}

var inventories = []string{"mi300x8", "mi300a4", "mi308x8", "mi325x8", "mi350x8", "mi355x8", "h100x2-mi300x2"}

// amdGPUs are what the simulator says of the GPUs without a driver.
func (m *machine) amdGPUs() []gpu.GPU {
	var gpus []gpu.GPU
	for _, g := range m.inventory.Hardware("node") {
		if g.Vendor == gpu.AMD {
			gpus = append(gpus, g)
		}
	}
	return gpus
}

// What the driver finds is what the inventory says, in every mode and after a
// restart of the plugin.
func TestSimulatedMachines(t *testing.T) {
	for _, name := range inventories {
		t.Run(name, func(t *testing.T) {
			m := simulated(t, name)
			want := m.amdGPUs()
			got := m.gpus()
			require.Len(t, got, len(want))
			for i := range want {
				assert.Equal(t, want[i], got[i])
			}
			for _, p := range got[0].Placements {
				if p.Start == 0 {
					m.create(p)
					assert.Equal(t, got, m.gpus(), "in %s", p.Profile)
					m.restart()
					assert.Equal(t, got, m.gpus(), "in %s, after a restart", p.Profile)
				}
			}
		})
	}
}

// Every partition of every mode of every GPU can be had, is one of its own, and
// a GPU is switched once for each mode.
func TestEveryPartitionOfEveryMode(t *testing.T) {
	for _, name := range inventories {
		t.Run(name, func(t *testing.T) {
			m := simulated(t, name)
			g := m.gpus()[0]
			profile := ""
			var switched []string
			owner := map[string]string{}
			for _, p := range g.Placements {
				if p.Profile != profile {
					profile, owner = p.Profile, map[string]string{}
				}
				part := m.create(p)
				switched = append(switched, m.switches()...)
				assert.True(t, part.Complete)
				assert.True(t, part.Is(p), "%v", part)
				nodes := m.nodes(p)
				require.Len(t, nodes, 2)
				assert.Equal(t, "/dev/kfd", nodes[0])
				assert.Empty(t, owner[nodes[1]], "%s has the node of another", p.Name())
				owner[nodes[1]] = p.Name()
				live, err := m.Live(t.Context(), p.GPU)
				require.NoError(t, err)
				if p.Type == gpu.TypeGPU {
					assert.Empty(t, live)
				} else {
					assert.Contains(t, live, part)
				}
			}
			assert.LessOrEqual(t, len(switched), 4, "%v", switched)
		})
	}
}

// Drivers of several ages say the same in several ways.
func TestAgesOfTheDriver(t *testing.T) {
	two := func(inv *models.Inventory) { inv.AMD = inv.AMD[:2] }
	usual := simulated(t, "mi300x8", two)
	for name, change := range map[string]func(*models.AMDDriver){
		"partition in the highest bits": func(d *models.AMDDriver) { d.HighLocationBits = true },
		"partition in the lowest bits":  func(d *models.AMDDriver) { d.HighLocationBits = false },
		"unique_id of the partition":    func(d *models.AMDDriver) { d.UniquePerPartition = true },
		"unique_id of the GPU":          func(d *models.AMDDriver) { d.UniquePerPartition = false },
		"devices with a dot":            func(d *models.AMDDriver) { d.XCPName = "." },
		"the driver of the kernel":      func(d *models.AMDDriver) { d.Version = "" },
	} {
		t.Run(name, func(t *testing.T) {
			m := simulated(t, "mi300x8", two, func(inv *models.Inventory) { change(&inv.AMDDriver) })
			for _, g := range usual.gpus() {
				for _, p := range []gpu.Placement{xcpOf(g.PCIAddress, "cpx", 0), xcpOf(g.PCIAddress, "cpx", 7)} {
					assert.Equal(t, usual.create(p), m.create(p))
					assert.Equal(t, usual.nodes(p), m.nodes(p))
				}
			}
			_, err := m.LoadID()
			assert.NoError(t, err)
		})
	}
}

// The board's own display driver takes one of 64 DRM numbers, so that the last
// partition of the last GPU cannot be had. All others can.
func TestSixtyThreeOfSixtyFourPartitions(t *testing.T) {
	m := simulated(t, "mi300x8", func(inv *models.Inventory) { inv.AMDDriver.DisplayAdapter = true })
	gpus := m.gpus()
	var missing []string
	seen := map[string]bool{}
	for _, g := range gpus {
		m.create(xcpOf(g.PCIAddress, "cpx", 0))
		live, err := m.Live(t.Context(), g.PCIAddress)
		require.NoError(t, err)
		require.Len(t, live, 8)
		for _, p := range live {
			if !p.Complete {
				missing = append(missing, p.Name())
				continue
			}
			for _, node := range m.nodes(xcpOf(p.GPU, "cpx", p.Start)) {
				assert.True(t, node == "/dev/kfd" || !seen[node], node)
				seen[node] = true
			}
		}
	}
	require.Len(t, missing, 1)
	last := gpus[7].PCIAddress
	assert.Equal(t, xcpOf(last, "cpx", 7).Name(), missing[0])
	assert.Equal(t, gpus, m.gpus(), "the GPUs are published as they are")

	_, err := m.Create(t.Context(), xcpOf(last, "cpx", 7))
	require.ErrorContains(t, err, "KFD has only 7 of the 8 partitions of mode CPX, and not that with index 7")
	obstacles, err := m.Obstacles(t.Context(), last, true)
	require.NoError(t, err)
	require.Len(t, obstacles, 1, "it is fenced")
	assert.Equal(t, missing[0], obstacles[0].Placement)
	assert.Equal(t, gpu.ObstacleMissing, obstacles[0].Kind)
	m.create(xcpOf(last, "dpx", 1))
}

// GPUs are switched at the same time, each under its own lock.
func TestGPUsAtTheSameTime(t *testing.T) {
	m := simulated(t, "mi300x8")
	var wait sync.WaitGroup
	for i, g := range m.gpus() {
		wait.Go(func() {
			for _, profile := range []string{"cpx", "dpx", "qpx"} {
				p := xcpOf(g.PCIAddress, profile, 1)
				if _, err := m.Create(t.Context(), p); assert.NoError(t, err) {
					edits, err := m.Edits(t.Context(), p)
					if assert.NoError(t, err) {
						assert.Equal(t, int64(m.inventory.RenderMinor(i)+1), nodeNumber(edits.DeviceNodes[1].Path))
					}
				}
			}
		})
	}
	wait.Wait()
}
