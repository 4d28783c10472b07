package claim

import (
	"context"
	"errors"
	"slices"

	"github.com/tranche-dev/tranche/pkg/claim/ledger"
	"github.com/tranche-dev/tranche/pkg/claim/plan"
	"github.com/tranche-dev/tranche/pkg/gpu"
)

// A claim on a lost GPU is released although the GPU cannot be cleaned up: its pods must be able
// to end. The partitions stay in the ledger as leftovers, one record for each claim and GPU, and
// are not allocated again until FinishReleases has removed them, or the driver was reloaded.

// lookAt reads the partitions of the GPUs of a release. Partitions on a lost GPU become
// leftovers.
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

// unlessLost makes a device a leftover if cleaning it up failed because its GPU is lost. If it
// already is a leftover, the error remains.
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

// forget deletes the record, after it has written the leftovers.
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

// InUse returns the records of claims that are not released.
func InUse(records []ledger.Record) []ledger.Record {
	return slices.DeleteFunc(records, func(r ledger.Record) bool { return r.Released })
}
