package claim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/claim/ledger"
	"github.com/tranche-dev/tranche/pkg/claim/steps"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/lists"
)

// Prepare creates the devices that were allocated to the claim, and returns its record now and
// before. It is idempotent, and completes an earlier call that failed.
func (m *Manager) Prepare(ctx context.Context, claim *resourceapi.ResourceClaim) (now, before ledger.Record, err error) {
	return m.prepareClaim(ctx, claim, false)
}

// prepareClaim is Prepare. With onlyHeld, it fails with errReleasedMeanwhile if the claim is not
// in the ledger.
func (m *Manager) prepareClaim(ctx context.Context, claim *resourceapi.ResourceClaim, onlyHeld bool) (now, before ledger.Record, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, Budget, fmt.Errorf("not finished within %s, the limit for one Prepare", Budget))
	defer cancel()
	ctx, over, err := m.prepares.begin(ctx, claim.UID)
	if err != nil {
		return now, before, err
	}
	defer over()
	patience := time.NewTimer(lateRelease)
	defer patience.Stop()
	p := &preparation{Manager: m, claim: claim, started: onlyHeld}
	for {
		released := m.whenReleased()
		now, err := p.attempt(ctx)
		if notReady := (*NotReadyError)(nil); errors.As(err, &notReady) {
			if failed := m.await(ctx, p.wanted, notReady); failed != nil {
				return ledger.Record{}, p.before, blameAlso(err, failed)
			}
			p.started = true
			continue
		}
		if conflict := (*steps.ConflictError)(nil); !errors.As(err, &conflict) {
			// The record of a claim that was released meanwhile is gone, or another call's.
			if err != nil && p.started && p.wanted.Claim.UID != "" && !errors.Is(err, errReleasedMeanwhile) {
				err = errors.Join(err, m.abandon(ctx, p.wanted))
			}
			return now, p.before, err
		}
		select {
		case <-released:
		case <-time.After(otherProcessRelease):
		case <-patience.C:
			return ledger.Record{}, p.before, err
		case <-ctx.Done():
			return ledger.Record{}, p.before, err
		}
	}
}

// want returns the record that the claim should have on the GPUs of the node. Without the locks of
// its GPUs, the answer may be outdated at once.
func (m *Manager) want(claim *resourceapi.ResourceClaim, gpus []gpu.GPU) (ledger.Record, error) {
	devices, err := steps.Allocated(claim, m.Node, gpus)
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
		d.Made = d.Made && !m.Static(d.Placement)
	}
	for _, user := range claim.Status.ReservedFor {
		if user.Resource == "pods" && user.APIGroup == "" {
			record.Pods = append(record.Pods, ledger.Pod{Name: user.Name, UID: user.UID})
		} else {
			record.Group = true
		}
	}
	return record, nil
}

type preparation struct {
	*Manager
	claim *resourceapi.ResourceClaim
	// before is the record of the claim before the first attempt.
	before ledger.Record
	// wanted is the record that the claim should have, by the last attempt that could tell.
	wanted ledger.Record
	// started: the record must exist, because an earlier attempt has written it and has
	// released the locks.
	started bool
	// read: before was read.
	read bool
}

// attempt tries to prepare the claim under the locks of its GPUs.
func (p *preparation) attempt(ctx context.Context) (ledger.Record, error) {
	held, unlock, err := p.lockRecord(ctx, names.OperationPrepare, p.claim.UID, steps.GPUs(p.claim, p.Node))
	if err != nil {
		return ledger.Record{}, err
	}
	defer unlock()
	if held != nil && !p.read {
		p.before = held.Clone()
	}
	p.read = true
	gpus := p.GPUs()
	wanted, err := p.want(p.claim, gpus)
	if err != nil {
		return ledger.Record{}, err
	}
	p.wanted = wanted
	if err := p.checkUnusable(wanted); err != nil {
		return ledger.Record{}, err
	}
	isHeld := held != nil && steps.SameDevices(*held, wanted)
	switch {
	case p.started && !isHeld:
		// It was released meanwhile, and would not be released again.
		return ledger.Record{}, errReleasedMeanwhile
	case held != nil && !isHeld:
		// The claim was allocated again, and the old allocation was not released.
		if err := p.releaseAsAsked(ctx, *held); err != nil {
			return ledger.Record{}, fmt.Errorf("release what claim %s held before: %w", wanted.Claim, err)
		}
		held = nil
	}
	start := time.Now()
	run, todo, err := p.stepsOf(ctx, gpus, wanted, held)
	p.observe(names.OperationPrepare, names.PhasePlan, start, err)
	if err != nil {
		return ledger.Record{}, err
	}
	if len(todo) > 0 {
		if err := p.removeStaleFiles(wanted); err != nil {
			return ledger.Record{}, err
		}
	}
	if err := run.do(ctx, todo); err != nil {
		return ledger.Record{}, err
	}
	return run.record, nil
}

// stepsOf reads the hardware, and returns the steps. gpus are the GPUs of the node; held is the claim's
// record, nil if it has none.
func (m *Manager) stepsOf(ctx context.Context, gpus []gpu.GPU, wanted ledger.Record, held *ledger.Record) (*run, []steps.Step, error) {
	wanted = wanted.Clone()
	s := steps.Situation{Wanted: wanted, GPUs: map[string]*gpu.GPU{}, CDI: m.CDI.Exists(wanted.Claim.UID), CanShare: m.Shares != nil, Static: m.Static}
	if held != nil {
		s.Held = m.current(held)
		wanted.KeepUnknown(*held)
	}
	for i := range gpus {
		s.GPUs[gpus[i].PCIAddress] = &gpus[i]
	}
	for _, gpuID := range gpusOf(wanted) {
		if s.GPUs[gpuID] == nil {
			return nil, nil, fmt.Errorf("GPU %s is no longer in the inventory of node %s; delete the pod so that it is scheduled again", gpu.NameOf(gpuID), m.Node)
		}
	}
	var err error
	if s.Live, err = m.live(ctx, takenBy(wanted)); err != nil {
		if driver := (*gpu.DriverError)(nil); errors.As(err, &driver) && steps.PreparedOnPaper(s) {
			return &run{Manager: m, operation: names.OperationPrepare, record: *s.Held}, nil, nil
		}
		return nil, nil, err
	}
	s.Others, s.Sharers = m.others(wanted)
	steps.Continue(s.Held, wanted, s.Live)
	todo, err := steps.Prepare(s)
	if err != nil {
		return nil, nil, err
	}
	r := &run{Manager: m, operation: names.OperationPrepare, record: wanted, before: held, live: s.Live, sharers: s.Sharers}
	if len(todo) == 0 {
		r.record = *s.Held
	}
	return r, todo, nil
}

// checkUnusable refuses a claim whose record cannot be used now, and a claim for a GPU that such a
// record may name.
func (m *Manager) checkUnusable(wanted ledger.Record) error {
	err := m.Ledger.Check(wanted.Claim.UID, gpusOf(wanted))
	cannot := (*ledger.UnusableError)(nil)
	if !errors.As(err, &cannot) || cannot.Claim.UID == wanted.Claim.UID {
		return err
	}
	return steps.NewConflict(
		fmt.Sprintf("%s cannot be prepared: %s of the same GPU, and Tranche cannot tell which; this is retried",
			deviceNames(wanted), whyUnusable(cannot.Unusable, "a part")),
		fmt.Sprintf("Claim %s was not prepared: %v", wanted.Claim, cannot))
}

// whyUnusable says what keeps a GPU from other claims, without the name of the claim.
func whyUnusable(u ledger.Unusable, what string) string {
	if u.Unreadable != nil {
		return "the record of another claim cannot be read, which may hold " + what
	}
	return "a newer version of Tranche has prepared " + what
}

// errReleasedMeanwhile ends a Prepare whose claim is released.
var errReleasedMeanwhile = errors.New("the claim was released while it was being prepared")

func gpusOf(r ledger.Record) []string {
	return lists.Map(r.Devices, func(d ledger.Device) string { return d.Placement.GPU })
}

// takenBy returns the GPUs of which the claim takes something. A monitor must start although a GPU does
// not answer.
func takenBy(r ledger.Record) []string {
	r.Devices = lists.Filter(r.Devices, func(d ledger.Device) bool { return !d.Admin })
	return gpusOf(r)
}

// underWay has the calls of Prepare that are in progress. A release cancels them first: the
// kubelet may have timed out, and the call would prepare devices that nobody releases.
type underWay struct {
	// mu protects calls.
	mu    sync.Mutex
	calls map[types.UID][]*call
}

type call struct {
	cancel context.CancelCauseFunc
	// over is closed when the call has returned.
	over chan struct{}
}

// begin adds a call. It fails if ctx has ended: the release may have been called before.
func (u *underWay) begin(ctx context.Context, claim types.UID) (_ context.Context, over func(), err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if ctx.Err() != nil {
		return nil, nil, context.Cause(ctx)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	c := &call{cancel: cancel, over: make(chan struct{})}
	if u.calls == nil {
		u.calls = map[types.UID][]*call{}
	}
	u.calls[claim] = append(u.calls[claim], c)
	return ctx, func() {
		cancel(nil)
		u.mu.Lock()
		defer u.mu.Unlock()
		if left := slices.DeleteFunc(u.calls[claim], func(other *call) bool { return other == c }); len(left) > 0 {
			u.calls[claim] = left
		} else {
			delete(u.calls, claim)
		}
		close(c.over)
	}, nil
}

// end cancels the calls for a claim, and waits until they have undone their steps.
func (u *underWay) end(ctx context.Context, claim types.UID) error {
	u.mu.Lock()
	calls := slices.Clone(u.calls[claim])
	u.mu.Unlock()
	for _, c := range calls {
		c.cancel(errReleasedMeanwhile)
	}
	for _, c := range calls {
		select {
		case <-c.over:
		case <-ctx.Done():
			return fmt.Errorf("wait until the Prepare in progress is cancelled: %w", context.Cause(ctx))
		}
	}
	return nil
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
