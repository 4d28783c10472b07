package claim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/tranche-dev/tranche/pkg/claim/ledger"
	"github.com/tranche-dev/tranche/pkg/claim/plan"
	"github.com/tranche-dev/tranche/pkg/gpu"
)

// Prepare creates the devices that were allocated to the claim, and returns its record now and
// before. It is idempotent, and completes an earlier call that failed.
func (m *Manager) Prepare(ctx context.Context, claim *resourceapi.ResourceClaim) (now, before ledger.Record, err error) {
	return m.prepareClaim(ctx, claim, false)
}

// prepareClaim is Prepare. With onlyHeld, it fails with errReleasedMeanwhile if the claim is not
// in the ledger.
func (m *Manager) prepareClaim(ctx context.Context, claim *resourceapi.ResourceClaim, onlyHeld bool) (now, before ledger.Record, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, Budget, fmt.Errorf("the %s for one Prepare are used up", Budget))
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
		if conflict := (*plan.ConflictError)(nil); !errors.As(err, &conflict) {
			if err != nil && p.started && p.wanted.Claim.UID != "" {
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

// want returns the record that the claim should have. The caller holds the locks of its GPUs, or
// computes it again under them.
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

// preparation is one call of Prepare.
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
	held, unlock, err := p.lockRecord(ctx, "prepare", p.claim.UID, plan.GPUs(p.claim, p.Node))
	if err != nil {
		return ledger.Record{}, err
	}
	defer unlock()
	if held != nil && !p.read {
		p.before = held.Clone()
	}
	p.read = true
	wanted, err := p.want(p.claim)
	if err != nil {
		return ledger.Record{}, err
	}
	p.wanted = wanted
	if err := p.checkUnusable(wanted); err != nil {
		return ledger.Record{}, err
	}
	isHeld := held != nil && plan.SameDevices(*held, wanted)
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
	run, steps, err := p.planRun(ctx, wanted, held)
	p.observe("prepare", "plan", start, err)
	if err != nil {
		return ledger.Record{}, err
	}
	if len(steps) > 0 {
		if err := p.removeStaleFiles(wanted); err != nil {
			return ledger.Record{}, err
		}
	}
	if err := run.do(ctx, steps); err != nil {
		return ledger.Record{}, err
	}
	return run.record, nil
}

// removeStaleFiles removes the CDI files that were written before a GPU's driver was reloaded. A
// container that restarts with such a file could get the devices of another claim. Reconcile
// prepares their claims again. The caller holds the locks of the GPUs.
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

// isStale reports whether a device of a record has lapsed.
func (m *Manager) isStale(r ledger.Record) bool {
	return slices.ContainsFunc(r.Devices, m.Lapsed)
}

// preparedOnPaper reports whether a claim is prepared according to the ledger, without the driver.
// A kubelet that restarts prepares the claims of running pods again.
func preparedOnPaper(s plan.Situation) bool {
	return s.Held != nil && s.Held.State == ledger.Prepared && s.CDI && plan.SameDevices(*s.Held, s.Wanted)
}

// planRun reads the hardware, and plans the steps. held is the claim's record; nil if it has none.
func (m *Manager) planRun(ctx context.Context, wanted ledger.Record, held *ledger.Record) (*run, []plan.Step, error) {
	wanted = wanted.Clone()
	s := plan.Situation{Wanted: wanted, GPUs: map[string]*gpu.GPU{}, CDI: m.CDI.Exists(wanted.Claim.UID), CanShare: m.Shares != nil, Static: m.static}
	s.Others, s.Sharers = m.others(wanted)
	if held != nil {
		s.Held = m.current(held)
		carryOver(s.Held, wanted)
		wanted.KeepUnknown(*held)
	}
	gpus := m.GPUs()
	for i := range gpus {
		s.GPUs[gpus[i].PCIAddress] = &gpus[i]
	}
	for _, gpuID := range gpusOf(wanted) {
		if s.GPUs[gpuID] == nil {
			return nil, nil, fmt.Errorf("GPU %s is no longer in the inventory of node %s; delete the pod so that it is scheduled again", gpu.NameOf(gpuID), m.Node)
		}
	}
	var err error
	if s.Live, err = m.live(ctx, gpusOf(wanted)); err != nil {
		if driver := (*gpu.DriverError)(nil); errors.As(err, &driver) && preparedOnPaper(s) {
			return &run{Manager: m, operation: "prepare", record: *s.Held}, nil, nil
		}
		return nil, nil, err
	}
	keepHandedOut(s.Held, wanted, s.Live)
	steps, err := plan.Prepare(s)
	if err != nil {
		return nil, nil, err
	}
	r := &run{Manager: m, operation: "prepare", record: wanted, before: held, live: s.Live, sharers: s.Sharers}
	if len(steps) == 0 {
		r.record = *s.Held
	}
	return r, steps, nil
}
