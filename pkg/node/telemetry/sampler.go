package telemetry

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/tranche-dev/tranche/pkg/claim/ledger"
	"github.com/tranche-dev/tranche/pkg/gpu"
)

// freshFor is for how many intervals a sample is reported.
const freshFor = 3

// SamplerConfig is what a Sampler needs.
type SamplerConfig struct {
	// Interval is the time between two measurements of a GPU.
	Interval time.Duration
	// GPUs lists the GPUs of the node.
	GPUs func() []gpu.GPU
	// Read measures a GPU. It returns when ctx ends.
	Read func(ctx context.Context, pciAddress string) (gpu.Usage, error)
	// Records lists the records of the ledger, with the changes of other processes.
	Records func() []ledger.Record
	// PodOf returns the UID of a process's pod; empty: it has none, or has ended.
	PodOf func(pid int) (types.UID, error)
	// Limited returns how much memory of a GPU the kernel driver counts for a pod, in bytes. It is
	// false if it limits none of the pod there. Nil: it limits no pod.
	Limited func(pod types.UID, pciAddress string) (int64, bool)
	// Containers returns the names of the containers of pods that use a claim. Nil: they are
	// not known.
	Containers func(context.Context) (Containers, error)
	// CheckPods corrects the pods in the record of a claim. It is called if they are probably
	// wrong: the kubelet prepares a claim once, also if more pods use it later. Nil: nobody
	// corrects them before the next reconciliation.
	CheckPods func(context.Context, ledger.ClaimRef)
}

// Sampler measures how much the GPUs of a node are used, in the background, and reports it as
// metrics of the pods that hold them. A scrape never waits for a GPU.
type Sampler struct {
	SamplerConfig

	// mu protects what follows, and what it points to.
	mu sync.Mutex
	// gpus are the GPUs of the node, by PCI address.
	gpus map[string]*sampled
	// containers are those of each user of a claim, as the kubelet last said.
	containers containersOf
	// checked is when the pods of a claim were last checked.
	checked map[types.UID]time.Time
	// asking: the kubelet is being asked.
	asking bool
}

// sampled is a GPU that is measured.
type sampled struct {
	// last is the last sample, nil: there is none. It does not change.
	last *sample
	// reading: the GPU is being measured. failed: it could not be measured, which was logged.
	reading, failed bool
}

// sample is what was measured of a GPU, with who held what all the while.
type sample struct {
	gpu.Usage
	at time.Time
	// alone are the tenures of the devices that had the same holder before and after the
	// measurement.
	alone map[string]tenure
	// pods are the pods of the processes, as far as they are known.
	pods map[int]types.UID
	// counted is the memory that the kernel driver counts for pods, in bytes.
	counted map[types.UID]int64
	rows    []row
}

// NewSampler makes a Sampler.
func NewSampler(c SamplerConfig) *Sampler {
	return &Sampler{SamplerConfig: c, gpus: map[string]*sampled{}}
}

// Run measures the GPUs until ctx ends.
func (s *Sampler) Run(ctx context.Context) {
	tick := time.NewTicker(s.Interval)
	defer tick.Stop()
	var running sync.WaitGroup
	defer running.Wait()
	for {
		s.start(ctx, &running)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// Measure measures all GPUs, and returns when it has.
func (s *Sampler) Measure(ctx context.Context) {
	var running sync.WaitGroup
	s.start(ctx, &running)
	running.Wait()
}

// start begins to measure each GPU that is not being measured, and to ask the kubelet. A GPU that
// hangs holds up no other. What is known of GPUs that the node does not have any more is dropped.
func (s *Sampler) start(ctx context.Context, running *sync.WaitGroup) {
	gpus, inUse := s.GPUs(), s.Containers != nil && len(handedOut(s.Records())) > 0
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.gpus
	s.gpus = map[string]*sampled{}
	for _, g := range gpus {
		of := before[g.PCIAddress]
		if of == nil {
			of = &sampled{}
		}
		s.gpus[g.PCIAddress] = of
		if !of.reading {
			of.reading = true
			running.Go(func() { s.measure(ctx, &g, of) })
		}
	}
	if inUse && !s.asking {
		s.asking = true
		running.Go(func() { s.ask(ctx) })
	}
}

// measure measures a GPU.
func (s *Sampler) measure(ctx context.Context, g *gpu.GPU, of *sampled) {
	bounded, cancel := context.WithTimeout(ctx, s.Interval)
	defer cancel()
	before := whoHolds(s.Records())
	used, err := s.Read(bounded, g.PCIAddress)
	now := &sample{Usage: used, at: time.Now(), pods: map[int]types.UID{}, counted: map[types.UID]int64{}}
	for _, p := range used.Processes {
		if uid, err := s.PodOf(p.PID); err == nil {
			now.pods[p.PID] = uid
		}
	}
	after := whoHolds(s.Records())
	for t := range after.shared {
		if t.device != g.Name() || s.Limited == nil {
			continue
		}
		if bytes, limited := s.Limited(t.pod, g.PCIAddress); limited {
			now.counted[t.pod] = bytes
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	of.reading = false
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		if !of.failed {
			klog.FromContext(ctx).V(1).Info("Cannot measure a GPU, will retry", "gpu", g.Name(), "err", err)
		}
		of.failed = true
		return
	}
	now.attribute(g, before, after, of.last)
	of.last, of.failed = now, false
}

// fresh returns the sample of a GPU; nil: there is none, or it is too old.
func (s *Sampler) fresh(pciAddress string) (*sample, containersOf) {
	s.mu.Lock()
	defer s.mu.Unlock()
	of := s.gpus[pciAddress]
	if of == nil || of.last == nil || time.Since(of.last.at) > freshFor*s.Interval {
		return nil, nil
	}
	return of.last, s.containers
}
