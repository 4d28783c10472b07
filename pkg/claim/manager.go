package claim

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/tranche-dev/tranche/pkg/cdi"
	"github.com/tranche-dev/tranche/pkg/claim/ledger"
	"github.com/tranche-dev/tranche/pkg/claim/plan"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware"
)

const (
	// Budget is how long one Prepare or Unprepare may take. The kubelet gives
	// up after 45 s; what is not finished by then is resumed by its retry.
	Budget = 30 * time.Second
	// undoBudget is how long the undoing of a failed Prepare may take on top.
	undoBudget = 10 * time.Second
	// lateRelease is how long Prepare waits for a holder whose release is
	// late, before it leaves the waiting to the kubelet's slower retry.
	lateRelease = 5 * time.Second
	// otherProcessRelease is how often it looks meanwhile whether another
	// process has released it.
	otherProcessRelease = 500 * time.Millisecond
)

// Observer is told about every phase of Prepare and Unprepare: "lock", "plan",
// and the steps by their Op.
type Observer interface {
	Phase(operation, phase string, took time.Duration, err error)
}

// Config is what a Manager works with. All fields but Shares, Static, Running,
// LockDir, Observer and BeforeStep are needed.
type Config struct {
	// Node is the name of the node.
	Node     string
	Hardware hardware.Partitioner
	Ledger   *ledger.Ledger
	CDI      *cdi.Dir
	// Shares sets up shares. Nil: claims of shares are refused.
	Shares Sharer
	// GPUs returns the GPUs of the node, as they are published.
	GPUs func() []gpu.GPU
	// LoadID identifies this boot and this load of the driver that serves a GPU.
	// Partitions outlive neither.
	LoadID func(pciAddress string) string
	// Static tells whether the partition at a placement is there whatever claims
	// do: they neither destroy it nor is it foreign, and one that is missing is made
	// and left. It looks at the placement's GPU, type, profile and start. Nil: none
	// is.
	Static func(gpu.Placement) bool
	// Running returns those of some pods of which processes still run on this node. Nil:
	// nobody can tell, so none counts as running.
	Running func(pods []ledger.Pod) ([]ledger.Pod, error)
	// LockDir is a folder for the lock files that keep two plugins on one node
	// apart. Empty: there is only this one.
	LockDir string

	Observer Observer
	// BeforeStep is called before each step and, with a nil step, after the
	// last one. Tests stop the driver in it.
	BeforeStep func(ctx context.Context, r ledger.Record, step *plan.Step)
}

// Manager prepares and releases claims. It is safe for concurrent use; claims
// on different GPUs proceed at the same time.
type Manager struct {
	Config
	locks    gpuLocks
	prepares underWay

	// mu protects released.
	mu sync.Mutex
	// released is closed, and replaced, whenever a claim has been released.
	released chan struct{}
}

// NewManager returns a Manager that has touched nothing yet.
func NewManager(c Config) *Manager {
	return &Manager{Config: c, locks: gpuLocks{dir: c.LockDir}, released: make(chan struct{})}
}

// others are the records of other claims on a record's GPUs, and what is still
// true of them.
func (m *Manager) others(r ledger.Record) (all, current []ledger.Record) {
	for _, other := range m.Ledger.On(gpusOf(r)) {
		if other.Claim.UID == r.Claim.UID {
			continue
		}
		all = append(all, other)
		if now := m.current(&other); now != nil && !now.Released {
			current = append(current, *now)
		}
	}
	return all, current
}

// current is what is still true of a record: the devices that were handed out
// under this load of their driver. It is nil if nothing is.
func (m *Manager) current(r *ledger.Record) *ledger.Record {
	now := *r
	now.Devices = slices.DeleteFunc(slices.Clone(r.Devices), func(d ledger.Device) bool {
		return d.LoadID != m.LoadID(d.Placement.GPU)
	})
	if len(now.Devices) == 0 {
		return nil
	}
	return &now
}

func (m *Manager) live(ctx context.Context, gpus []string) (map[string][]gpu.Partition, error) {
	live := map[string][]gpu.Partition{}
	for _, gpuID := range gpus {
		partitions, err := m.Hardware.Live(ctx, gpuID)
		if err != nil {
			return nil, fmt.Errorf("list the partitions of GPU %s: %w", gpu.NameOf(gpuID), err)
		}
		live[gpuID] = partitions
	}
	return live, nil
}

func (m *Manager) lock(ctx context.Context, operation string, gpus []string) (func(), error) {
	start := time.Now()
	unlock, err := m.locks.lock(ctx, gpus)
	if err == nil {
		if err = m.Refresh(ctx); err != nil {
			unlock()
		}
	}
	m.observe(operation, "lock", start, err)
	return unlock, err
}

// Refresh takes in what another process has written before it let go of a lock.
func (m *Manager) Refresh(ctx context.Context) error {
	broken, err := m.Ledger.Refresh()
	for _, f := range m.recoverBroken(broken) {
		klog.FromContext(ctx).Info(f.Message, "err", f.Err)
	}
	return err
}

func (m *Manager) observe(operation, phase string, start time.Time, err error) {
	if m.Observer != nil {
		m.Observer.Phase(operation, phase, time.Since(start), err)
	}
}

func (m *Manager) whenReleased() <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.released
}

func (m *Manager) announceRelease() {
	m.mu.Lock()
	defer m.mu.Unlock()
	close(m.released)
	m.released = make(chan struct{})
}

// gpusOf lists the GPUs of a record's devices.
func gpusOf(r ledger.Record) []string {
	var gpus []string
	for _, d := range r.Devices {
		gpus = append(gpus, d.Placement.GPU)
	}
	return gpus
}

// static tells whether the partition at a placement is there whatever claims do.
func (m *Manager) static(p gpu.Placement) bool { return m.Static != nil && m.Static(p.Base()) }

// madeOn lists the GPUs on which a record's partitions were made. Only they
// need to answer when the claim is released.
func madeOn(r ledger.Record) []string {
	var gpus []string
	for _, d := range r.Devices {
		if plan.Ours(d) {
			gpus = append(gpus, d.Placement.GPU)
		}
	}
	return gpus
}
