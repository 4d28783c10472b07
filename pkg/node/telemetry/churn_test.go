package telemetry

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/assert"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/gpu"
)

// mostClaims is how many claims come and go.
const mostClaims = 10_000

// memory is 8 GPUs of 7 partitions each, in memory. Averages are over the time since the last
// reading, like those of GPM: they mix what two claims did.
type memory struct {
	mu   sync.Mutex
	now  map[spot]int64
	last map[string]map[int]int64
}

// spot is a place of a partition.
type spot struct {
	gpu   string
	start int
}

func (m *memory) read(_ context.Context, pciAddress string) (gpu.Usage, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	u := gpu.Usage{Measured: gpu.Measured{gpu.Power: 300}}
	before, now := m.last[pciAddress], map[int]int64{}
	for start := range 7 {
		n := m.now[spot{pciAddress, start}]
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

// set lets claim n use a partition: n MiB, and n of 20000 compute units. 0: nobody does.
func (m *memory) set(p gpu.Placement, n int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.now[spot{p.GPU, p.Start}] = n
}

// churn lets claims come and go on a machine, and compares what is reported all the while.
type churn struct {
	*node
	*memory
	registry *prometheus.Registry
	started  atomic.Int64
	// wrong is a value that is somebody else's; labelled counts those that had a claim.
	wrong    atomic.Pointer[string]
	labelled atomic.Int64
}

// run lets claims come and go on one GPU.
func (c *churn) run(ctx context.Context, g *gpu.GPU, random *rand.Rand) error {
	for ctx.Err() == nil {
		n := c.started.Add(1)
		if n > mostClaims {
			return nil
		}
		p := place(random.IntN(7))
		p.GPU = g.PCIAddress
		name := fmt.Sprint("claim-", n)
		c.hold(name, podsNamed("pod-"+name), device(p, fmt.Sprint("MIG-", p.Start)))
		c.set(p, n)
		if random.IntN(20) == 0 {
			c.Measure(ctx)
		}
		if random.IntN(20) == 0 {
			if err := c.scrapeAll(); err != nil {
				return err
			}
		}
		c.set(p, 0)
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
			case names.MetricMemoryUsed:
				right = right && (value == 0 || value == n*(1<<20))
			case names.MetricComputeActive:
				right = right && (value == 0 || value == n/20000 || value == n/2/20000)
			}
			if !right {
				text := fmt.Sprint(family.GetName(), labels, m)
				c.wrong.CompareAndSwap(nil, &text)
			}
		}
	}
}

// With 10,000 claims that come and go while others measure and scrape, no value of one claim is
// reported of another, and nothing is left.
func TestChurn(t *testing.T) {
	m := &memory{now: map[spot]int64{}, last: map[string]map[int]int64{}}
	c := &churn{node: newNode(), memory: m, registry: prometheus.NewRegistry()}
	c.gpus, c.use, c.Interval = nil, m.read, time.Hour
	for i := range 8 {
		c.gpus = append(c.gpus, gpu.GPU{PCIAddress: fmt.Sprintf("0000:%02x:00.0", i+1), UUID: fmt.Sprint("GPU-", i)})
	}
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
	for i := range c.gpus {
		workers.Go(func() {
			assert.NoError(t, c.run(ctx, &c.gpus[i], rand.New(rand.NewPCG(1, uint64(i))))) //nolint:gosec // the same each time
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
	assert.Contains(t, text, "tranche_memory_used_bytes")
}
