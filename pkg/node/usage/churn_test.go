package usage

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware/nvidia"
	"github.com/tranche-dev/tranche/pkg/publish/models"
	"github.com/tranche-dev/tranche/test/simulator/load"
	"github.com/tranche-dev/tranche/test/simulator/nvdriver"
)

// machine is 8 GPUs of 7 partitions each.
type machine interface {
	// gpus lists the GPUs.
	gpus() []gpu.GPU
	// read measures a GPU.
	read(ctx context.Context, pciAddress string) (gpu.Usage, error)
	// begin makes the partition if it does not exist, and returns its UUID. remake: it is
	// made anew.
	begin(ctx context.Context, p gpu.Placement, remake bool) (uuid string, err error)
	// work lets claim n use the partition: n MiB, and n of 20000 compute units. idle ends it.
	work(p gpu.Placement, n int64) error
	idle(p gpu.Placement, n int64) error
}

// memory is a machine in memory. Its averages are over the time since the last reading, like
// those of GPM: they mix what two claims did.
type memory struct {
	list []gpu.GPU
	mu   sync.Mutex
	now  map[spot]int64
	last map[string]map[int]int64
}

// spot is a place of a partition.
type spot struct {
	gpu   string
	start int
}

func (m *memory) gpus() []gpu.GPU { return m.list }

func (m *memory) read(_ context.Context, pciAddress string) (gpu.Usage, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	u := gpu.Usage{Measured: gpu.Measured{gpu.Power: 300}}
	before, now := m.last[pciAddress], map[int]int64{}
	for start := range 7 {
		n := m.now[key(pciAddress, start)]
		now[start] = n
		values := gpu.Measured{gpu.MemoryUsed: float64(n) * (1 << 20)}
		if before != nil {
			values[gpu.ComputeActive] = float64(n+before[start]) / 2 / 20000
		}
		part := measured(start, values)
		part.GPU = pciAddress
		u.Partitions = append(u.Partitions, part)
	}
	m.last[pciAddress] = now
	return u, nil
}

func key(pciAddress string, start int) spot { return spot{pciAddress, start} }

func (m *memory) begin(_ context.Context, p gpu.Placement, _ bool) (string, error) {
	return fmt.Sprint("MIG-", p.Start), nil
}

func (m *memory) set(p gpu.Placement, n int64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.now[key(p.GPU, p.Start)] = n
	return nil
}

func (m *memory) work(p gpu.Placement, n int64) error { return m.set(p, n) }

func (m *memory) idle(p gpu.Placement, _ int64) error { return m.set(p, 0) }

// simulator is a machine below the real driver.
type simulator struct {
	*nvidia.Driver
	root string
	list []gpu.GPU

	mu        sync.Mutex
	instances map[string]gpu.Partition
}

func newSimulator(t *testing.T) *simulator {
	t.Helper()
	inventory, err := models.LoadInventory("h100x8")
	require.NoError(t, err)
	s := &simulator{root: t.TempDir(), instances: map[string]gpu.Partition{}}
	library, err := nvdriver.New(inventory, nvdriver.Options{Root: s.root, Sleep: func(time.Duration) {}, Logf: t.Logf})
	require.NoError(t, err)
	s.Driver, err = nvidia.New(nvidia.Config{NVML: library, DriverRoot: library.DriverRoot(), ProcRoot: s.root, SysRoot: filepath.Join(s.root, "sys")})
	require.NoError(t, err)
	require.NoError(t, s.Open(t.Context()))
	t.Cleanup(func() { _ = s.Close(context.Background()) })
	s.list, err = s.Inventory(t.Context())
	require.NoError(t, err)
	for i := range s.list {
		require.NoError(t, s.SetMIG(t.Context(), s.list[i].PCIAddress, true, false))
	}
	return s
}

func (s *simulator) gpus() []gpu.GPU { return s.list }

func (s *simulator) read(ctx context.Context, pciAddress string) (gpu.Usage, error) {
	return s.Usage(ctx, pciAddress)
}

func (s *simulator) begin(ctx context.Context, p gpu.Placement, remake bool) (string, error) {
	if remake {
		if err := s.Destroy(ctx, p); err != nil {
			return "", err
		}
	}
	part, err := s.Create(ctx, p)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.instances[p.Name()] = part
	return part.UUID, err
}

func (s *simulator) work(p gpu.Placement, n int64) error {
	s.mu.Lock()
	part := s.instances[p.Name()]
	s.mu.Unlock()
	var instance int
	if _, err := fmt.Sscanf(part.ID, "GI %d", &instance); err != nil {
		return err
	}
	return nvdriver.AddProcess(s.root, nvdriver.Process{GPU: p.GPU, GPUInstance: &instance, PID: int(n), Use: load.Use{MemoryMiB: int(n)}})
}

func (s *simulator) idle(_ gpu.Placement, n int64) error {
	return nvdriver.RemoveProcess(s.root, int(n))
}

// churn lets claims come and go on a machine, and compares what is reported all the while.
type churn struct {
	*node
	machine
	registry *prometheus.Registry
	claims   int64
	started  atomic.Int64
	// wrong is a value that is somebody else's; labelled counts those that had a claim.
	wrong    atomic.Pointer[string]
	labelled atomic.Int64
}

// run lets claims come and go on one GPU.
func (c *churn) run(ctx context.Context, g *gpu.GPU, random *rand.Rand) error {
	for ctx.Err() == nil {
		n := c.started.Add(1)
		if n > c.claims {
			return nil
		}
		p := place(random.IntN(7))
		p.GPU = g.PCIAddress
		uuid, err := c.begin(ctx, p, random.IntN(10) == 0)
		if err != nil {
			return err
		}
		name := fmt.Sprint("claim-", n)
		c.hold(name, podsNamed("pod-"+name), device(p, uuid))
		if err := c.work(p, n); err != nil {
			return err
		}
		if random.IntN(20) == 0 {
			c.Measure(ctx)
		}
		if random.IntN(20) == 0 {
			if err := c.scrapeAll(); err != nil {
				return err
			}
		}
		if err := c.idle(p, n); err != nil {
			return err
		}
		c.release(name)
	}
	return ctx.Err()
}

func (c *churn) scrapeAll() error {
	families, err := c.registry.Gather()
	c.check(families)
	return err
}

// check compares what is reported of a claim with what it does, or did until a moment ago, or has
// not begun: all of it, half of it as an average, or nothing.
func (c *churn) check(families []*dto.MetricFamily) {
	for _, family := range families {
		for _, m := range family.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			var n float64
			if _, err := fmt.Sscanf(labels["claim"], "claim-%f", &n); err != nil {
				continue
			}
			c.labelled.Add(1)
			right := labels["pod"] == "pod-"+labels["claim"]
			switch value := m.GetGauge().GetValue(); family.GetName() {
			case names.MetricFBUsed:
				right = right && (value == 0 || value == n*(1<<20))
			case names.MetricSMActive:
				right = right && (value == 0 || value == n/20000 || value == n/2/20000)
			}
			if !right {
				text := fmt.Sprint(family.GetName(), labels, m)
				c.wrong.CompareAndSwap(nil, &text)
			}
		}
	}
}

// churns lets claims come and go, while others measure and scrape.
func churns(t *testing.T, m machine, claims int64) {
	t.Helper()
	c := &churn{node: newNode(), machine: m, registry: prometheus.NewRegistry(), claims: claims}
	c.node.gpus, c.use, c.Interval = m.gpus(), m.read, time.Hour
	c.registry.MustRegister(c.Sampler)
	ctx, stop := context.WithCancel(t.Context())
	var background, workers sync.WaitGroup
	background.Go(func() {
		for ctx.Err() == nil {
			if !assert.NoError(t, c.scrapeAll()) {
				return
			}
		}
	})
	for i := range c.node.gpus {
		workers.Go(func() {
			assert.NoError(t, c.run(ctx, &c.node.gpus[i], rand.New(rand.NewPCG(1, uint64(i))))) //nolint:gosec // the same each time
		})
	}
	workers.Wait()
	stop()
	background.Wait()
	if wrong := c.wrong.Load(); wrong != nil {
		assert.Fail(t, "a value is reported of somebody else", *wrong)
	}
	assert.Positive(t, c.labelled.Load(), "claims were measured")
	t.Logf("%d values had a claim", c.labelled.Load())
	c.Measure(t.Context())
	text := strings.Join(c.scrape(t, "tranche_"), "\n")
	assert.NotContains(t, text, "claim-", "leftover series")
	assert.Contains(t, text, "tranche_fb_used_bytes")
}

// With 10,000 claims, no value of one claim is reported of another, and nothing is left.
func TestChurn(t *testing.T) {
	m := &memory{now: map[spot]int64{}, last: map[string]map[int]int64{}}
	for i := range 8 {
		m.list = append(m.list, gpu.GPU{PCIAddress: fmt.Sprintf("0000:%02x:00.0", i+1), UUID: fmt.Sprint("GPU-", i)})
	}
	churns(t, m, 10_000)
}

// The same below the real driver, where a claim takes longer: partitions are made and destroyed.
func TestChurnOnTheSimulator(t *testing.T) { churns(t, newSimulator(t), 60) }
