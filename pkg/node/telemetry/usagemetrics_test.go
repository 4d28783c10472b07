package telemetry

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tranche-dev/tranche/pkg/claim/ledger"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/test/nodetest"
)

const (
	firstGPU = "0000:01:00.0"
	interval = 10 * time.Second
	// unreadable is a process whose pod cannot be found out.
	unreadable = 99
)

// node is a node with one GPU of two partitions.
type node struct {
	*Sampler
	gpus []gpu.GPU

	mu      sync.Mutex
	records map[types.UID]ledger.Record
	// use is what is measured; nil: measuring fails.
	use  func(ctx context.Context, pciAddress string) (gpu.Usage, error)
	pods map[int]types.UID
}

func newNode() *node {
	g := gpu.GPU{PCIAddress: firstGPU, UUID: "GPU-1", ProductName: "H100", Vendor: "nvidia", Architecture: "Hopper", DriverVersion: "580"}
	n := &node{gpus: []gpu.GPU{g}, records: map[types.UID]ledger.Record{}, pods: map[int]types.UID{}}
	n.Sampler = NewSampler(SamplerConfig{
		Interval: interval,
		GPUs:     func() []gpu.GPU { return n.gpus },
		Read:     func(ctx context.Context, address string) (gpu.Usage, error) { return n.use(ctx, address) },
		Records: func() []ledger.Record {
			n.mu.Lock()
			defer n.mu.Unlock()
			var all []ledger.Record
			for _, r := range n.records {
				all = append(all, r.Clone())
			}
			return all
		},
		PodOf: func(pid int) (types.UID, error) {
			if pid == unreadable {
				return "", errors.New("/proc cannot be read")
			}
			return n.pods[pid], nil
		},
	})
	return n
}

// place is a partition of the GPU, or the whole GPU.
func place(start int) gpu.Placement {
	if start < 0 {
		return gpu.Placement{GPU: firstGPU, Type: gpu.TypeGPU}
	}
	return gpu.Placement{GPU: firstGPU, Type: gpu.TypeMIG, Profile: "1g.10gb", Start: start, Size: 1}
}

// hold lets a claim hold devices for pods.
func (n *node) hold(claim string, pods []ledger.Pod, devices ...ledger.Device) {
	n.mu.Lock()
	defer n.mu.Unlock()
	uid := types.UID("uid-" + claim)
	n.records[uid] = ledger.Record{
		Claim: ledger.ClaimRef{UID: uid, Namespace: "team", Name: claim}, State: ledger.Prepared, Devices: devices, Pods: pods,
	}
}

func (n *node) release(claim string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.records, types.UID("uid-"+claim))
}

func device(p gpu.Placement, uuid string) ledger.Device {
	return ledger.Device{Name: p.Name(), Placement: p, UUID: uuid}
}

func podsNamed(names ...string) (pods []ledger.Pod) {
	for _, name := range names {
		pods = append(pods, ledger.Pod{Name: name, UID: types.UID("uid-" + name)})
	}
	return pods
}

// measured is a partition with values. Its UUID depends on its place only, as with NVML.
func measured(start int, values gpu.Measured) gpu.PartitionUsage {
	p := place(start)
	return gpu.PartitionUsage{
		Partition: gpu.Partition{GPU: p.GPU, Type: p.Type, Profile: p.Profile, Start: p.Start, Size: p.Size, UUID: fmt.Sprint("MIG-", start), Complete: true},
		Instance:  fmt.Sprint(7 + start), Measured: values,
	}
}

// always returns the same usage.
func always(u gpu.Usage) func(context.Context, string) (gpu.Usage, error) {
	return func(context.Context, string) (gpu.Usage, error) { return u, nil }
}

// scrape returns the samples of a metric, without the labels that say which GPU it is.
func (n *node) scrape(t *testing.T, metric string) (lines []string) {
	t.Helper()
	for _, line := range nodetest.Scrape(t, n.handler(t), metric) {
		lines = append(lines, strings.ReplaceAll(line, `gpu="gpu-0000-01-00-0",`, ""))
	}
	return lines
}

// all returns all samples.
func (n *node) all(t *testing.T) string {
	t.Helper()
	return strings.Join(n.scrape(t, "tranche_"), "\n")
}

func (n *node) handler(t *testing.T) http.Handler {
	t.Helper()
	registry := prometheus.NewRegistry()
	require.NoError(t, registry.Register(n.Sampler))
	return promhttp.HandlerFor(registry, promhttp.HandlerOpts{})
}

func TestUsageOfPartitions(t *testing.T) {
	n := newNode()
	n.hold("a", podsNamed("web"), device(place(0), "MIG-0"))
	n.hold("monitor", podsNamed("monitor"), ledger.Device{Name: place(1).Name(), Placement: place(1), Admin: true})
	n.hold("unfinished", podsNamed("soon"), device(place(1), "MIG-1"))
	unfinished := n.records["uid-unfinished"]
	unfinished.State = ledger.Preparing
	n.records["uid-unfinished"] = unfinished
	n.use = always(gpu.Usage{
		Measured:  gpu.Measured{gpu.MemoryUsed: 30, gpu.Power: 300, gpu.UncorrectedErrors: 1},
		Throttled: map[string]bool{"sw_power_cap": true},
		Partitions: []gpu.PartitionUsage{
			measured(0, gpu.Measured{gpu.MemoryUsed: 10, gpu.ComputeActive: 0.5}), measured(1, gpu.Measured{gpu.MemoryUsed: 20}),
		},
	})
	n.Measure(t.Context())
	assert.Equal(t, []string{
		`tranche_memory_used_bytes{claim="",container="",device="gpu-0000-01-00-0",gpu_instance_id="",namespace="",parent_uuid="",pod="",profile="",type="gpu",uuid="GPU-1"} 30`,
		`tranche_memory_used_bytes{claim="",container="",device="gpu-0000-01-00-0-mig-1g-10gb-1",gpu_instance_id="8",namespace="",parent_uuid="GPU-1",pod="",profile="1g.10gb",type="mig",uuid="MIG-1"} 20`,
		`tranche_memory_used_bytes{claim="a",container="",device="gpu-0000-01-00-0-mig-1g-10gb-0",gpu_instance_id="7",namespace="team",parent_uuid="GPU-1",pod="web",profile="1g.10gb",type="mig",uuid="MIG-0"} 10`,
	}, n.scrape(t, "tranche_memory_used_bytes{"))
	assert.Equal(t, []string{`tranche_clocks_throttled{reason="sw_power_cap",uuid="GPU-1"} 1`}, n.scrape(t, "tranche_clocks"))
	assert.Equal(t, []string{`tranche_ecc_uncorrected_errors_total{uuid="GPU-1"} 1`}, n.scrape(t, "tranche_ecc"))
	assert.Equal(t, []string{`tranche_gpu_info{architecture="Hopper",driver_version="580",product_name="H100",uuid="GPU-1",vendor="nvidia"} 1`}, n.scrape(t, "tranche_gpu_info"))
	assert.Len(t, n.scrape(t, "tranche_compute_active_ratio{"), 1)

	n.release("a")
	assert.Empty(t, n.scrape(t, `tranche_compute_active_ratio{`), "the series ends with the claim")
	assert.NotContains(t, n.all(t), "web")
	n.gpus = nil
	assert.Empty(t, n.scrape(t, "tranche_"), "a GPU that was removed")
	n.Measure(t.Context())
	assert.Empty(t, n.Sampler.gpus)
}

// What was measured of a claim is never reported of the next one, although the partition has the
// same UUID: neither at once nor as an average over a time that both had a part of.
func TestClaimsInTurns(t *testing.T) {
	n := newNode()
	busy := func(used, active float64) {
		n.use = always(gpu.Usage{Partitions: []gpu.PartitionUsage{measured(0, gpu.Measured{gpu.MemoryUsed: used, gpu.ComputeActive: active})}})
	}
	n.hold("a", podsNamed("a"), device(place(0), "MIG-0"))
	busy(10, 1)
	n.Measure(t.Context())
	assert.Len(t, n.scrape(t, "tranche_memory_used"), 1)
	n.release("a")
	n.hold("b", podsNamed("b"), device(place(0), "MIG-0"))
	assert.Empty(t, n.scrape(t, "tranche_memory_used"), "nothing was measured of b")
	busy(20, 0.5)
	n.Measure(t.Context())
	assert.Contains(t, n.scrape(t, "tranche_memory_used")[0], `pod="b"`)
	assert.Contains(t, n.scrape(t, "tranche_memory_used")[0], `} 20`)
	assert.Empty(t, n.scrape(t, "tranche_compute_active"), "half of the interval was a's")
	n.Measure(t.Context())
	busy(20, 0.4)
	n.Measure(t.Context())
	assert.Contains(t, n.scrape(t, "tranche_compute_active")[0], `} 0.4`)

	// A claim that is released while the GPU is measured.
	n.use = func(context.Context, string) (gpu.Usage, error) {
		n.release("b")
		n.hold("c", podsNamed("c"), device(place(0), "MIG-0"))
		return gpu.Usage{Partitions: []gpu.PartitionUsage{measured(0, gpu.Measured{gpu.MemoryUsed: 30})}}, nil
	}
	n.Measure(t.Context())
	assert.Empty(t, n.scrape(t, "tranche_memory_used"))

	// The same claim for another pod.
	n.hold("c", podsNamed("d"), device(place(0), "MIG-0"))
	busy(40, 0)
	n.Measure(t.Context())
	n.hold("c", podsNamed("e"), device(place(0), "MIG-0"))
	assert.Empty(t, n.scrape(t, "tranche_memory_used"))
	// A pod that joins: what both use belongs to none of them.
	n.hold("c", podsNamed("e", "f"), device(place(0), "MIG-0"))
	n.Measure(t.Context())
	assert.Contains(t, n.scrape(t, "tranche_memory_used")[0], `claim="c",container="",device="gpu-0000-01-00-0-mig-1g-10gb-0",gpu_instance_id="7",namespace="team",parent_uuid="GPU-1",pod=""`)
	n.hold("c", podsNamed("f", "e"), device(place(0), "MIG-0"))
	assert.Len(t, n.scrape(t, "tranche_memory_used"), 1, "in any order")
	// A partition that is not the claim's.
	n.hold("c", podsNamed("e", "f"), device(place(0), "MIG-x"))
	assert.Empty(t, n.scrape(t, "tranche_memory_used"))
	n.Measure(t.Context())
	assert.Empty(t, n.scrape(t, "tranche_memory_used"))
}

func share(p gpu.Placement, id string, memory int64) ledger.Device {
	s := gpu.ShareOf(p, gpu.ByMemory, gpu.Sharing{Strategy: gpu.TimeSlicing})
	return ledger.Device{Name: s.Name(), Placement: s, UUID: "GPU-1", ShareID: types.UID(id), Amount: &gpu.Amount{Memory: memory}}
}

func process(pid int, used, util float64) gpu.ProcessUsage {
	return gpu.ProcessUsage{PID: pid, Device: place(-1).Name(), Measured: gpu.Measured{gpu.MemoryUsed: used, gpu.Utilization: util}}
}

// Shares are measured by the processes of their pods.
func TestUsageOfShares(t *testing.T) {
	n := newNode()
	n.hold("a", podsNamed("web", "web"), share(place(-1), "1", 100))
	n.hold("b", podsNamed("train"), share(place(-1), "2", 200), share(place(-1), "3", 50))
	n.hold("c", podsNamed("idle"), share(place(-1), "4", 10))
	n.hold("d", podsNamed("two"), share(place(-1), "5", 10))
	n.hold("e", podsNamed("two"), share(place(-1), "6", 10))
	n.hold("f", podsNamed("part"), share(place(0), "7", 30))
	n.pods = map[int]types.UID{1: "uid-web", 2: "uid-train", 3: "uid-train", 4: "uid-other", 5: "uid-two", 6: "uid-part"}
	inPart := process(6, 7, 0.2)
	inPart.Device = place(0).Name()
	n.use = always(gpu.Usage{
		Measured:   gpu.Measured{gpu.MemoryUsed: 99, gpu.ProcessCount: 5},
		Partitions: []gpu.PartitionUsage{measured(0, gpu.Measured{gpu.MemoryUsed: 8, gpu.ProcessCount: 1})},
		Processes:  []gpu.ProcessUsage{process(1, 10, 0.1), process(2, 20, 0.7), process(3, 30, 0.6), process(4, 40, 0.1), process(5, 5, 0), inPart},
	})
	n.Measure(t.Context())
	assert.Equal(t, []string{
		`tranche_memory_used_bytes{claim="",container="",device="gpu-0000-01-00-0",gpu_instance_id="",namespace="",parent_uuid="",pod="",profile="",type="gpu",uuid="GPU-1"} 99`,
		`tranche_memory_used_bytes{claim="",container="",device="gpu-0000-01-00-0",gpu_instance_id="",namespace="team",parent_uuid="GPU-1",pod="two",profile="",type="share",uuid="GPU-1"} 5`,
		`tranche_memory_used_bytes{claim="",container="",device="gpu-0000-01-00-0-mig-1g-10gb-0",gpu_instance_id="7",namespace="",parent_uuid="GPU-1",pod="",profile="1g.10gb",type="mig",uuid="MIG-0"} 8`,
		`tranche_memory_used_bytes{claim="a",container="",device="gpu-0000-01-00-0-memory-share",gpu_instance_id="",namespace="team",parent_uuid="GPU-1",pod="web",profile="",type="share",uuid="GPU-1"} 10`,
		`tranche_memory_used_bytes{claim="b",container="",device="gpu-0000-01-00-0-memory-share",gpu_instance_id="",namespace="team",parent_uuid="GPU-1",pod="train",profile="",type="share",uuid="GPU-1"} 50`,
		`tranche_memory_used_bytes{claim="c",container="",device="gpu-0000-01-00-0-memory-share",gpu_instance_id="",namespace="team",parent_uuid="GPU-1",pod="idle",profile="",type="share",uuid="GPU-1"} 0`,
		`tranche_memory_used_bytes{claim="f",container="",device="gpu-0000-01-00-0-mig-1g-10gb-0-memory-share",gpu_instance_id="7",namespace="team",parent_uuid="GPU-1",pod="part",profile="1g.10gb",type="share",uuid="MIG-0"} 7`,
	}, n.scrape(t, "tranche_memory_used_bytes{"))
	text := n.all(t)
	assert.Regexp(t, `(?m)^tranche_utilization_ratio{claim="b".*} 1$`, text, "no more than all")
	assert.Regexp(t, `tranche_memory_total_bytes{claim="b".*} 250\n`, text)
	assert.Regexp(t, `tranche_processes{claim="b".*} 2\n`, text)
	n.release("b")
	assert.NotContains(t, n.all(t), `claim="b"`)
}

// Of a pod whose memory the kernel driver limits, its own count is told: it has all that the limit has.
func TestSharesThatTheKernelLimits(t *testing.T) {
	n := newNode()
	n.hold("a", podsNamed("web"), share(place(-1), "1", 100))
	n.hold("b", podsNamed("web"), share(place(-1), "2", 50))
	n.hold("c", podsNamed("train"), share(place(-1), "3", 100))
	n.hold("d", podsNamed("web"), share(place(0), "4", 10))
	n.pods = map[int]types.UID{1: "uid-web", 2: "uid-train"}
	n.use = always(gpu.Usage{Measured: gpu.Measured{gpu.ProcessCount: 2}, Partitions: []gpu.PartitionUsage{measured(0, gpu.Measured{gpu.ProcessCount: 0})}, Processes: []gpu.ProcessUsage{process(1, 10, 0.1), process(2, 20, 0.1)}})
	n.Limited = func(pod types.UID, _ string) (int64, bool) { return 77, pod == "uid-web" }
	n.Measure(t.Context())
	text := n.all(t)
	assert.Regexp(t, `tranche_memory_used_bytes{claim="".*pod="web".*} 77\n`, text, "of both claims together")
	assert.Regexp(t, `tranche_memory_used_bytes{claim="c".*} 20\n`, text)
	assert.Regexp(t, `tranche_memory_used_bytes{claim="d".*} 0\n`, text, "it limits no memory of partitions")

	// Of which of two pods with one name the count is, nobody knows.
	n.hold("a", []ledger.Pod{{Name: "web", UID: "uid-web"}, {Name: "web", UID: "new"}}, share(place(-1), "1", 100))
	n.Measure(t.Context())
	assert.Regexp(t, `tranche_memory_used_bytes{claim="".*pod="web".*} 10\n`, n.all(t))
}

// What the driver does not report of processes is not zero.
func TestSharesOfUnknownProcesses(t *testing.T) {
	for name, u := range map[string]gpu.Usage{
		"of the GPU":  {Measured: gpu.Measured{gpu.MemoryUsed: 99}},
		"of a pod":    {Measured: gpu.Measured{gpu.ProcessCount: 2}, Processes: []gpu.ProcessUsage{process(1, 10, 0.1), process(unreadable, 20, 0.1)}},
		"of no share": {Measured: gpu.Measured{gpu.ProcessCount: 1}, Processes: []gpu.ProcessUsage{process(unreadable, 20, 0.1)}},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode()
			n.hold("a", podsNamed("web"), share(place(-1), "1", 100))
			n.pods = map[int]types.UID{1: "uid-web"}
			n.use = always(u)
			n.Measure(t.Context())
			assert.NotRegexp(t, `tranche_(memory_used_bytes|processes|utilization_ratio){claim="a"`, n.all(t))
			assert.Regexp(t, `tranche_memory_total_bytes{claim="a".*} 100\n`, n.all(t))
		})
	}
}

// What a claim of several pods was allocated is told once.
func TestSharesOfSeveralPods(t *testing.T) {
	n := newNode()
	n.hold("a", podsNamed("web", "batch"), share(place(-1), "1", 100), share(place(-1), "2", 20))
	n.pods = map[int]types.UID{1: "uid-web", 2: "uid-batch"}
	n.use = always(gpu.Usage{Measured: gpu.Measured{gpu.ProcessCount: 2}, Processes: []gpu.ProcessUsage{process(1, 10, 0.1), process(2, 20, 0.1)}})
	n.Measure(t.Context())
	totals := n.scrape(t, "tranche_memory_total_bytes{")
	require.Len(t, totals, 1)
	assert.Contains(t, totals[0], `pod="",`)
	assert.Contains(t, totals[0], `} 120`)
	assert.Len(t, n.scrape(t, "tranche_memory_used_bytes{"), 2)

	// A pod that replaces one of its name.
	n.hold("a", []ledger.Pod{{Name: "web", UID: "old"}, {Name: "web", UID: "new"}}, share(place(-1), "1", 100))
	n.Measure(t.Context())
	totals = n.scrape(t, "tranche_memory_total_bytes{")
	require.Len(t, totals, 1)
	assert.Contains(t, totals[0], `pod="web",`)
	assert.Contains(t, totals[0], `} 100`)
}

// While a GPU changes hands, what does not depend on its holder is there.
func TestAGPUThatChangesHands(t *testing.T) {
	n := newNode()
	n.hold("a", podsNamed("a"), device(place(-1), "GPU-1"))
	n.use = always(gpu.Usage{Measured: gpu.Measured{gpu.MemoryTotal: 80, gpu.MemoryUsed: 10, gpu.Power: 300}})
	n.Measure(t.Context())
	n.release("a")
	n.hold("b", podsNamed("b"), device(place(-1), "GPU-1"))
	for metric, value := range map[string]string{"tranche_memory_total_bytes{": "80", "tranche_power_watts{": "300"} {
		lines := n.scrape(t, metric)
		require.Len(t, lines, 1, metric)
		assert.Contains(t, lines[0], `claim=""`)
		assert.Contains(t, lines[0], "} "+value)
	}
	assert.Empty(t, n.scrape(t, "tranche_memory_used_bytes{"))
}

// A name that is not UTF-8 takes away no metric.
func TestNamesOfDrivers(t *testing.T) {
	n := newNode()
	n.gpus[0].ProductName, n.gpus[0].UUID = "H\xff100", "GPU-\xfe1"
	n.use = always(gpu.Usage{Measured: gpu.Measured{gpu.MemoryUsed: 1}})
	n.Measure(t.Context())
	assert.Contains(t, n.scrape(t, "tranche_gpu_info")[0], `product_name="H100",uuid="GPU-1"`)
	assert.Len(t, n.scrape(t, "tranche_memory_used_bytes"), 1)
}
