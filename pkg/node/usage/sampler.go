package usage

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

// Config is what a Sampler needs.
type Config struct {
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
	// Containers returns the names of the containers of pods that use a claim. Nil: they are
	// not known.
	Containers func(context.Context) (Containers, error)
	// CheckPods corrects the pods in the record of a claim. It is called if they are probably
	// wrong: the kubelet prepares a claim once, also if more pods use it later. Nil: nobody
	// corrects them before the next reconciliation.
	CheckPods func(context.Context, ledger.ClaimRef)
}

// Sampler measures the GPUs of a node. It implements prometheus.Collector.
type Sampler struct {
	Config

	// mu protects what follows.
	mu sync.Mutex
	// samples are the last samples, by PCI address.
	samples map[string]*timed
	// reading are the GPUs that are being measured.
	reading map[string]bool
	// failed has what was last logged of a GPU that cannot be measured.
	failed map[string]string
	// containers are the containers of each user of a claim, as the kubelet last said.
	containers map[user][]string
	// checked is when the pods of a claim were last checked.
	checked map[types.UID]time.Time
	// asking: the kubelet is being asked.
	asking bool
}

// timed is a sample with its time.
type timed struct {
	sample
	at time.Time
}

// New makes a Sampler.
func New(c Config) *Sampler {
	return &Sampler{Config: c, samples: map[string]*timed{}, reading: map[string]bool{}, failed: map[string]string{}, checked: map[types.UID]time.Time{}}
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

// start begins to measure each GPU that is not being measured. One that hangs holds up no other.
func (s *Sampler) start(ctx context.Context, running *sync.WaitGroup) {
	gpus := s.GPUs()
	s.forget(gpus)
	for _, g := range gpus {
		if s.begin(g.PCIAddress) {
			running.Go(func() {
				defer s.end(g.PCIAddress)
				s.measure(ctx, g.PCIAddress)
			})
		}
	}
	if s.beginToAsk() {
		running.Go(func() { s.ask(ctx) })
	}
}

// Measure measures all GPUs, and returns when it has.
func (s *Sampler) Measure(ctx context.Context) {
	var running sync.WaitGroup
	s.start(ctx, &running)
	running.Wait()
}

func (s *Sampler) begin(pciAddress string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reading[pciAddress] {
		return false
	}
	s.reading[pciAddress] = true
	return true
}

func (s *Sampler) end(pciAddress string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.reading, pciAddress)
}

// forget drops what is known of GPUs that the node does not have any more.
func (s *Sampler) forget(gpus []gpu.GPU) {
	s.mu.Lock()
	defer s.mu.Unlock()
	has := map[string]bool{}
	for i := range gpus {
		has[gpus[i].PCIAddress] = true
	}
	for address := range s.samples {
		if !has[address] {
			delete(s.samples, address)
		}
	}
}

// measure measures a GPU.
func (s *Sampler) measure(ctx context.Context, pciAddress string) {
	bounded, cancel := context.WithTimeout(ctx, s.Interval)
	defer cancel()
	before := whoHolds(s.Records())
	used, err := s.Read(bounded, pciAddress)
	if ctx.Err() != nil {
		return
	}
	s.note(ctx, pciAddress, err)
	if err != nil {
		return
	}
	pods := map[int]types.UID{}
	for _, p := range used.Processes {
		if uid, err := s.PodOf(p.PID); err == nil {
			pods[p.PID] = uid
		}
	}
	now := &timed{sample: sample{Usage: used, pods: pods}, at: time.Now()}
	after := whoHolds(s.Records())
	s.mu.Lock()
	defer s.mu.Unlock()
	var last *sample
	if t := s.samples[pciAddress]; t != nil {
		last = &t.sample
	}
	now.stamp(before, after, gpu.NameOf(pciAddress), last)
	s.samples[pciAddress] = now
}

// note logs once that a GPU cannot be measured.
func (s *Sampler) note(ctx context.Context, pciAddress string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		delete(s.failed, pciAddress)
		return
	}
	if _, said := s.failed[pciAddress]; !said {
		klog.FromContext(ctx).V(1).Info("GPU cannot be measured, which is tried again", "gpu", gpu.NameOf(pciAddress), "reason", err.Error())
	}
	s.failed[pciAddress] = err.Error()
}

// fresh returns the sample of a GPU; nil: there is none, or it is too old.
func (s *Sampler) fresh(pciAddress string) *sample {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.samples[pciAddress]
	if t == nil || time.Since(t.at) > freshFor*s.Interval {
		return nil
	}
	return &t.sample
}
