package claim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	resourceapi "k8s.io/api/resource/v1"
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

// Prepare makes what was allocated to the claim, and returns its record. It is
// idempotent, and finishes what an earlier call did not.
func (m *Manager) Prepare(ctx context.Context, claim *resourceapi.ResourceClaim) (ledger.Record, error) {
	return m.prepareClaim(ctx, claim, false)
}

// prepareClaim is Prepare. onlyHeld: a claim that is not, or no longer, in the ledger
// fails with errReleasedMeanwhile.
func (m *Manager) prepareClaim(ctx context.Context, claim *resourceapi.ResourceClaim, onlyHeld bool) (ledger.Record, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, Budget, fmt.Errorf("the %s for one Prepare are used up", Budget))
	defer cancel()

	ctx, over, err := m.prepares.begin(ctx, claim.UID)
	if err != nil {
		return ledger.Record{}, err
	}
	defer over()
	wanted, err := m.want(claim)
	if err != nil {
		return ledger.Record{}, err
	}
	patience := time.NewTimer(lateRelease)
	defer patience.Stop()
	started := onlyHeld
	for {
		released := m.whenReleased()
		record, err := m.prepare(ctx, claim, wanted, started)
		if notReady := (*NotReadyError)(nil); errors.As(err, &notReady) {
			if err := m.await(ctx, wanted, notReady); err != nil {
				return ledger.Record{}, err
			}
			started = true
			continue
		}
		if conflict := (*plan.ConflictError)(nil); !errors.As(err, &conflict) {
			if err != nil && started {
				err = errors.Join(err, m.abandon(ctx, wanted))
			}
			return record, err
		}
		select {
		case <-released:
		case <-time.After(otherProcessRelease):
		case <-patience.C:
			return ledger.Record{}, err
		case <-ctx.Done():
			return ledger.Record{}, err
		}
	}
}

// want is the record as it should be once the claim is prepared.
func (m *Manager) want(claim *resourceapi.ResourceClaim) (ledger.Record, error) {
	devices, err := plan.Allocated(claim, m.Node, m.GPUs())
	if err != nil {
		return ledger.Record{}, err
	}
	record := ledger.Record{
		Claim:   ledger.ClaimRef{UID: claim.UID, Namespace: claim.Namespace, Name: claim.Name},
		State:   ledger.Preparing,
		Devices: devices,
	}
	for i := range devices {
		d := &devices[i]
		d.LoadID = m.LoadID(d.Placement.GPU)
		d.Made = d.Made && !m.static(d.Placement)
	}
	for _, user := range claim.Status.ReservedFor {
		if user.Resource == "pods" {
			record.Pods = append(record.Pods, ledger.Pod{Name: user.Name, UID: user.UID})
		}
	}
	return record, nil
}

// prepare is one try of Prepare. wanted is what was wanted before it waited for the locks
// of the GPUs, which may have changed meanwhile. started says that an earlier one wrote
// the record down and let go of the locks.
func (m *Manager) prepare(ctx context.Context, claim *resourceapi.ResourceClaim, wanted ledger.Record, started bool) (ledger.Record, error) {
	gpus := gpusOf(wanted)
	if held, ok := m.Ledger.Get(wanted.Claim.UID); ok {
		gpus = append(gpus, gpusOf(held)...)
	}
	unlock, err := m.lock(ctx, "prepare", gpus)
	if err != nil {
		return ledger.Record{}, err
	}
	defer unlock()
	if wanted, err = m.want(claim); err != nil {
		return ledger.Record{}, err
	}
	if err := m.checkNewer(wanted); err != nil {
		return ledger.Record{}, err
	}

	held, ok := m.Ledger.Get(wanted.Claim.UID)
	if started && (!ok || !plan.SameDevices(held, wanted)) {
		// Whoever released it meanwhile will not do so again for us.
		return ledger.Record{}, errReleasedMeanwhile
	}
	if ok && !plan.SameDevices(held, wanted) {
		// The claim was allocated anew and nobody told us that the old
		// allocation ended.
		if err := m.release(ctx, held); err != nil {
			return ledger.Record{}, fmt.Errorf("release what claim %s held before: %w", wanted.Claim, err)
		}
	}
	start := time.Now()
	run, steps, err := m.planRun(ctx, wanted)
	m.observe("prepare", "plan", start, err)
	if err != nil {
		return ledger.Record{}, err
	}
	if len(steps) > 0 {
		if err := m.removeStaleFiles(wanted); err != nil {
			return ledger.Record{}, err
		}
	}
	if err := run.do(ctx, steps); err != nil {
		return ledger.Record{}, err
	}
	return run.record, nil
}

// removeStaleFiles removes the CDI files that were written under an earlier load of a
// GPU's driver. What they name may be made for another claim now: a container that
// starts again by such a file would have it, too. Reconcile prepares their claims
// again. The caller holds the locks of the GPUs.
func (m *Manager) removeStaleFiles(wanted ledger.Record) error {
	for _, r := range m.Ledger.On(gpusOf(wanted)) {
		if !m.isStale(r) {
			continue
		}
		if err := m.CDI.Remove(r.Claim.UID); err != nil {
			return err
		}
	}
	return nil
}

// isStale tells whether the driver of one of a record's GPUs was loaded again since the
// device was handed out. A driver that is not there says nothing.
func (m *Manager) isStale(r ledger.Record) bool {
	return slices.ContainsFunc(r.Devices, func(d ledger.Device) bool {
		now := m.LoadID(d.Placement.GPU)
		return now != "" && now != d.LoadID
	})
}

// planRun looks at the ledger and the hardware and decides what to do.
func (m *Manager) planRun(ctx context.Context, wanted ledger.Record) (*run, []plan.Step, error) {
	wanted = wanted.Clone()
	s := plan.Situation{Wanted: wanted, GPUs: map[string]*gpu.GPU{}, CDI: m.CDI.Exists(wanted.Claim.UID), CanShare: m.Shares != nil, Static: m.static}
	s.Others, s.Sharers = m.others(wanted)
	var before *ledger.Record
	if r, ok := m.Ledger.Get(wanted.Claim.UID); ok {
		before, s.Held = &r, m.current(&r)
		carryOver(s.Held, wanted)
		wanted.KeepUnknown(r)
	}
	gpus := m.GPUs()
	for i := range gpus {
		s.GPUs[gpus[i].PCIAddress] = &gpus[i]
	}
	for _, gpuID := range gpusOf(wanted) {
		if s.GPUs[gpuID] == nil {
			return nil, nil, fmt.Errorf("GPU %s has vanished from node %s", gpu.NameOf(gpuID), m.Node)
		}
	}
	var err error
	if s.Live, err = m.live(ctx, gpusOf(wanted)); err != nil {
		if withoutDriver(err) && preparedOnPaper(s) {
			return &run{Manager: m, operation: "prepare", record: *s.Held}, nil, nil
		}
		return nil, nil, err
	}
	keepHandedOut(s.Held, wanted, s.Live)
	steps, err := plan.Prepare(s)
	if err != nil {
		return nil, nil, err
	}
	r := &run{Manager: m, operation: "prepare", record: wanted, before: before, live: s.Live, sharers: s.Sharers}
	if len(steps) == 0 {
		r.record = *s.Held
	}
	return r, steps, nil
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

// Unprepare releases what the claim holds. A claim that holds nothing is no
// error: it may never have been prepared, or be released already. A Prepare of the
// claim that is under way is ended. Where the driver cannot be used now, what is in the
// hardware is removed by a later Reconcile.
func (m *Manager) Unprepare(ctx context.Context, claim ledger.ClaimRef) error {
	ctx, cancel := context.WithTimeoutCause(ctx, Budget, fmt.Errorf("the %s for one Unprepare are used up", Budget))
	defer cancel()
	if err := m.prepares.end(ctx, claim.UID); err != nil {
		return err
	}
	return m.unprepare(ctx, claim, func(ledger.Record) bool { return true }, m.releaseOrPostpone)
}

// unprepare releases the claim's record if it is, once nobody else works on its
// GPUs, the one that is meant.
func (m *Manager) unprepare(ctx context.Context, claim ledger.ClaimRef, meant func(ledger.Record) bool, release func(context.Context, ledger.Record) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, Budget, fmt.Errorf("the %s for one Unprepare are used up", Budget))
	defer cancel()

	if err := m.Refresh(ctx); err != nil {
		return err
	}
	if err := m.Ledger.CheckClaim(claim.UID); err != nil {
		return err
	}
	held, ok := m.Ledger.Get(claim.UID)
	if !ok {
		return m.CDI.Remove(claim.UID)
	}
	unlock, err := m.lock(ctx, "unprepare", gpusOf(held))
	if err != nil {
		return err
	}
	defer unlock()
	if held, ok = m.Ledger.Get(claim.UID); !ok || !meant(held) {
		return nil
	}
	return release(ctx, held)
}

// release undoes a record. The caller holds the locks of its GPUs.
func (m *Manager) release(ctx context.Context, held ledger.Record) error {
	if err := m.checkNewerSharers(held); err != nil {
		return err
	}
	_, sharers := m.others(held)
	r := &run{Manager: m, operation: "unprepare", record: held, live: map[string][]gpu.Partition{}, sharers: sharers}
	if now := m.current(&held); now != nil {
		if err := r.lookAt(ctx, madeOn(*now)); err != nil {
			return err
		}
	}
	if err := r.do(ctx, plan.Release(held, r.live, sharers, m.static)); err != nil {
		return err
	}
	klog.FromContext(ctx).Info("Released", "claim", held.Claim.String(), "claimUID", held.Claim.UID)
	m.announceRelease()
	return nil
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
