package claim

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/claim/ledger"
	"github.com/tranche-dev/tranche/pkg/claim/steps"
	"github.com/tranche-dev/tranche/pkg/gpu"
)

// Try prepares a device as for a claim, except for the last step, and removes it again. It finds
// out whether a device can be prepared that could not be. tried is false if claims, partitions of
// others or the ledger are in the way, so that nothing was tried.
//
// Its record is one of a claim that is released already. So no claim gets the device meanwhile,
// and FinishReleases removes what a crash, or a removal that failed, left behind.
func (m *Manager) Try(ctx context.Context, p gpu.Placement) (tried bool, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, Budget, fmt.Errorf("not finished within %s, the limit for one trial", Budget))
	defer cancel()
	trial := m.trialOf(p)
	left, unlock, err := m.lockRecord(ctx, names.OperationReconcile, trial.Claim.UID, []string{p.GPU})
	if err != nil {
		return false, err
	}
	defer unlock()
	if left != nil {
		if err := m.release(ctx, *left); err != nil {
			return false, err
		}
	}
	if err := m.checkUnusable(trial); err != nil {
		return false, err
	}
	for {
		var held *ledger.Record
		if earlier, ok := m.Ledger.Get(trial.Claim.UID); ok {
			held = &earlier // a daemon has become ready
		}
		r, todo, err := m.stepsOf(ctx, m.GPUs(), trial, held)
		if err != nil {
			return tried, err
		}
		tried = true
		err = r.do(ctx, todo[:len(todo)-1])
		if notReady := (*NotReadyError)(nil); errors.As(err, &notReady) {
			if err = notReady.Wait(ctx); err == nil {
				continue
			}
		}
		if !m.Ledger.Has(trial.Claim.UID) {
			return true, err // it was undone
		}
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoBudget)
		defer cancel()
		return true, errors.Join(err, m.release(ending, r.record))
	}
}

// trialOf is the record of a trial. There is one at a time on a GPU.
func (m *Manager) trialOf(p gpu.Placement) ledger.Record {
	d := ledger.Device{
		Request: "trial", Pool: names.PoolName(m.Node), Name: p.Name(), Placement: p, LoadID: m.LoadID(p.GPU),
		Made: p.Base().Type == gpu.TypeMIG && !m.Static(p),
	}
	if p.Share != nil {
		d.ShareID, d.Amount = "trial", steps.LeastOf(p)
	}
	return ledger.Record{
		Claim: ledger.ClaimRef{UID: types.UID("trial-" + p.GPUName()), Name: "trial of " + p.Name()},
		State: ledger.Preparing, Released: true, Devices: []ledger.Device{d},
	}
}
