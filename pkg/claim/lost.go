package claim

import (
	"context"
	"errors"
	"slices"

	"github.com/tranche-dev/tranche/pkg/claim/ledger"
	"github.com/tranche-dev/tranche/pkg/claim/plan"
	"github.com/tranche-dev/tranche/pkg/gpu"
)

// A claim on a lost GPU is released all the same: nothing on the GPU can be used any
// more, and its pods must be able to go. What could not be cleaned up stays in the
// ledger as leftovers, one record per claim and GPU. They keep the place occupied
// until FinishReleases has cleaned up, or the driver was loaded again.

// lookAt reads the partitions of the GPUs that a release works on. Partitions on a
// lost GPU are left behind.
func (r *run) lookAt(ctx context.Context, gpus []string) error {
	for _, address := range gpus {
		live, err := r.Manager.live(ctx, []string{address})
		if err != nil && (r.record.Released || !errors.Is(err, gpu.ErrLost)) {
			return err
		}
		if err == nil {
			r.live[address] = live[address]
			continue
		}
		for i, d := range r.record.Devices {
			if d.Placement.GPU == address && d.LoadID == r.LoadID(address) && plan.Ours(d) && !r.static(d.Placement) && !plan.HeldByOthers(d, r.sharers) {
				r.leaveBehind(i)
			}
		}
	}
	return nil
}

// unlessLost turns the failure to clean up a device into a leftover, if the reason is
// that its GPU is lost. Of what is a leftover already it remains a failure.
func (r *run) unlessLost(device int, err error) error {
	if err == nil || r.record.Released || !errors.Is(err, gpu.ErrLost) {
		return err
	}
	r.leaveBehind(device)
	return nil
}

func (r *run) leaveBehind(device int) {
	if r.left == nil {
		r.left = map[int]bool{}
	}
	r.left[device] = true
}

// forget drops the record, and writes down its leftovers before.
func (r *run) forget() error {
	byGPU := map[string][]ledger.Device{}
	for i, d := range r.record.Devices {
		if r.left[i] {
			byGPU[d.Placement.GPU] = append(byGPU[d.Placement.GPU], d)
		}
	}
	for address, devices := range byGPU {
		left := r.record.Clone()
		left.Claim.UID = ledger.LeftoverUID(r.record.Claim.UID, gpu.NameOf(address))
		left.Released, left.State, left.Devices, left.Pods = true, ledger.Preparing, devices, nil
		if err := r.Ledger.Put(left); err != nil {
			return err
		}
	}
	return r.Ledger.Delete(r.record.Claim.UID)
}

// InUse lists the records of claims that are not released.
func InUse(records []ledger.Record) []ledger.Record {
	return slices.DeleteFunc(records, func(r ledger.Record) bool { return r.Released })
}
