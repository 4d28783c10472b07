package claim

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/tranche-dev/tranche/pkg/cdi"
	"github.com/tranche-dev/tranche/pkg/claim/ledger"
	"github.com/tranche-dev/tranche/pkg/claim/steps"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware"
)

const (
	// Budget is how long one Prepare or Unprepare may take. The kubelet gives
	// up after 45 s; what is not finished by then is resumed by its retry.
	Budget = 30 * time.Second
	// undoBudget is how long undoing a failed Prepare may take in addition.
	undoBudget = 10 * time.Second
	// lateRelease is how long Prepare waits until a conflicting claim is released, before
	// the kubelet has to retry. otherProcessRelease is how often it checks whether another
	// process has released the claim.
	lateRelease         = 5 * time.Second
	otherProcessRelease = 500 * time.Millisecond
)

// Observer is called after every phase of Prepare and Unprepare: "lock", "plan", and the steps,
// named by their Op.
type Observer interface {
	Phase(operation, phase string, took time.Duration, err error)
}

// Config has what a Manager works with. Shares, Static, Running, Observer and
// BeforeStep are optional.
type Config struct {
	// Node is the name of the node.
	Node string
	// Driver returns the driver of a GPU.
	Driver hardware.Lookup
	Ledger *ledger.Ledger
	CDI    *cdi.Dir
	// Shares sets up shares. Nil: claims of shares are refused.
	Shares Sharer
	// GPUs returns the GPUs of the node, as they are published.
	GPUs func() []gpu.GPU
	// LoadID identifies the current boot and load of the driver of a GPU; empty: it is not
	// known. Partitions survive neither a reboot nor a reload.
	LoadID func(pciAddress string) string
	// Static reports whether a profile keeps a partition at a placement, by GPU, type,
	// profile and start. Such a partition is neither foreign nor destroyed with a claim; a
	// missing one is created and kept. Nil: there are none.
	Static func(gpu.Placement) bool
	// Running returns the pods that still have processes on this node. Nil: no pod counts
	// as running.
	Running func(pods []ledger.Pod) ([]ledger.Pod, error)
	// LockDir is the folder of lock files that two plugins on one node share.
	LockDir string

	Observer Observer
	// BeforeStep is called before each step and, with a nil step, after the last one.
	// Tests stop the plugin in it.
	BeforeStep func(ctx context.Context, r ledger.Record, step *steps.Step)
}

// Manager prepares and releases claims. It is safe for concurrent use. Claims on different GPUs
// proceed in parallel.
type Manager struct {
	Config
	locks    gpuLocks
	prepares underWay

	// mu protects released.
	mu sync.Mutex
	// released is closed and replaced whenever a claim was released.
	released chan struct{}
}

// NewManager returns a Manager. It changes nothing yet.
func NewManager(c Config) *Manager {
	static := c.Static
	c.Static = func(p gpu.Placement) bool { return static != nil && static(p.Base()) }
	return &Manager{Config: c, locks: gpuLocks{dir: c.LockDir}, released: make(chan struct{})}
}

// others returns the records of other claims on a record's GPUs, and the current parts of those
// that are not released.
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

// Lapsed reports whether the driver of a device's GPU was reloaded since the device was prepared.
// While one of the two loads is not known, the device counts as one that still exists.
func (m *Manager) Lapsed(d ledger.Device) bool {
	now := m.LoadID(d.Placement.GPU)
	return now != "" && d.LoadID != "" && now != d.LoadID
}

// current returns the record with only those devices that have not lapsed; nil if there are none.
func (m *Manager) current(r *ledger.Record) *ledger.Record {
	now := *r
	now.Devices = slices.DeleteFunc(slices.Clone(r.Devices), m.Lapsed)
	if len(now.Devices) == 0 {
		return nil
	}
	return &now
}

func (m *Manager) live(ctx context.Context, gpus []string) (map[string][]gpu.Partition, error) {
	live := map[string][]gpu.Partition{}
	for _, gpuID := range gpus {
		partitions, err := m.present(ctx, gpuID)
		if err != nil {
			return nil, fmt.Errorf("list the partitions of GPU %s: %w", gpu.NameOf(gpuID), err)
		}
		live[gpuID] = partitions
	}
	return live, nil
}

// present lists the partitions of a GPU, to compare them with what claims hold. If a claim holds
// the GPU as a whole, which has no partitions but is in MIG mode, so that programs cannot use it, the
// whole GPU is listed as an incomplete partition.
func (m *Manager) present(ctx context.Context, pciAddress string) ([]gpu.Partition, error) {
	driver, err := m.Driver(pciAddress)
	if err != nil {
		return nil, err
	}
	partitions, err := driver.Live(ctx, pciAddress)
	isWhole := func(d ledger.Device) bool { return d.Placement.Base().Type == gpu.TypeGPU }
	if err != nil || len(partitions) > 0 || !slices.ContainsFunc(m.Ledger.DevicesOn(pciAddress), isWhole) {
		return partitions, err
	}
	if modes, err := driver.Modes(ctx, pciAddress); err != nil || modes.MIG != gpu.MIGOn {
		return nil, err
	}
	return []gpu.Partition{{GPU: pciAddress, Type: gpu.TypeGPU}}, nil
}

func (m *Manager) destroy(ctx context.Context, p gpu.Placement) error {
	driver, err := m.Driver(p.GPU)
	if err != nil {
		return err
	}
	return driver.Destroy(ctx, p)
}

func (m *Manager) observe(operation, phase string, start time.Time, err error) {
	if m.Observer != nil {
		m.Observer.Phase(operation, phase, time.Since(start), err)
	}
}

// madeOn lists the GPUs on which a record's partitions were created. Only these need to answer
// when the claim is released.
func madeOn(r ledger.Record) []string {
	var gpus []string
	for _, d := range r.Devices {
		if steps.Ours(d) {
			gpus = append(gpus, d.Placement.GPU)
		}
	}
	return gpus
}
