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

// Prepare creates the devices that were allocated to the claim, and returns its record. It is
// idempotent, and completes an earlier call that failed.
func (m *Manager) Prepare(ctx context.Context, claim *resourceapi.ResourceClaim) (ledger.Record, error) {
	return m.prepareClaim(ctx, claim, false)
}

// prepareClaim is Prepare. With onlyHeld, it fails with errReleasedMeanwhile if the claim is not
// in the ledger.
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
			if failed := m.await(ctx, wanted, notReady); failed != nil {
				return ledger.Record{}, blameAlso(err, failed)
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

// want returns the record that the claim should have.
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

// prepare is one attempt of Prepare. wanted was computed before the locks of the GPUs were
// taken, so it is computed again. started: an earlier attempt has written the record and has
// released the locks.
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
	if err := m.checkUnusable(wanted); err != nil {
		return ledger.Record{}, err
	}

	held, ok := m.Ledger.Get(wanted.Claim.UID)
	if started && (!ok || !plan.SameDevices(held, wanted)) {
		// It was released meanwhile, and would not be released again.
		return ledger.Record{}, errReleasedMeanwhile
	}
	if ok && !plan.SameDevices(held, wanted) {
		// The claim was allocated again, and the old allocation was not released.
		if err := m.releaseAsAsked(ctx, held); err != nil {
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

// isStale tells whether a device of a record has lapsed.
func (m *Manager) isStale(r ledger.Record) bool {
	return slices.ContainsFunc(r.Devices, m.Lapsed)
}

// preparedOnPaper tells whether a claim is prepared according to the ledger, without the driver.
// A kubelet that restarts prepares the claims of running pods again.
func preparedOnPaper(s plan.Situation) bool {
	return s.Held != nil && s.Held.State == ledger.Prepared && s.CDI && plan.SameDevices(*s.Held, s.Wanted)
}

// planRun reads the ledger and the hardware, and plans the steps.
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
	r := &run{Manager: m, operation: "prepare", record: wanted, before: before, live: s.Live, sharers: s.Sharers}
	if len(steps) == 0 {
		r.record = *s.Held
	}
	return r, steps, nil
}
