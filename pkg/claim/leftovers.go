package claim

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/klog/v2"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/claim/ledger"
	"github.com/tranche-dev/tranche/pkg/claim/steps"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/text"
)

// A claim is released although its GPU cannot be cleaned up, whatever the driver answers: its pods
// must be able to end, and often the driver works again only after they have ended. What cannot be
// removed stays in the ledger as leftovers, one record for each claim and GPU, and is not allocated
// again until FinishReleases has removed it, or the driver was reloaded.

// lookPatience is how long a release waits for the lists of partitions. The rest of its Budget is
// for daemons and for removing partitions.
const lookPatience = 10 * time.Second

// longestCause limits the cause in a record, in bytes.
const longestCause = 600

// mayLeave reports whether a release may leave behind what an error keeps on a GPU. If the kubelet
// asks, it may, unless the driver names processes that use it. If nobody asks, only a lost GPU is
// left behind: whether the pods have ended is not known. Leftovers stay leftovers.
func (r *run) mayLeave(err error) bool {
	switch held := (*gpu.ProcessesError)(nil); {
	case err == nil:
		return false
	case r.asked:
		return !errors.As(err, &held)
	}
	return !r.record.Released && errors.Is(err, gpu.ErrLost)
}

// lookAt reads the partitions of the GPUs of a release. Partitions on a GPU that does not answer
// become leftovers.
func (r *run) lookAt(ctx context.Context, gpus []string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, lookPatience, fmt.Errorf("not finished within %s, the limit for listing partitions", lookPatience))
	defer cancel()
	for _, address := range gpus {
		live, err := r.Manager.live(ctx, []string{address})
		if err == nil {
			r.live[address] = live[address]
			continue
		}
		if !r.mayLeave(err) {
			return err
		}
		for i, d := range r.record.Devices {
			if d.Placement.GPU == address && !r.Lapsed(d) && steps.Ours(d) && !r.Static(d.Placement) && !steps.HeldByOthers(d, r.sharers) {
				r.leaveBehind(i, err)
			}
		}
	}
	return nil
}

// orLeave makes a device a leftover if it could not be cleaned up and may be left behind.
func (r *run) orLeave(device int, err error) error {
	if r.mayLeave(err) {
		r.leaveBehind(device, err)
		return nil
	}
	return err
}

func (r *run) leaveBehind(device int, cause error) {
	if r.left == nil {
		r.left = map[int]error{}
	}
	r.left[device] = cause
}

// whyLeft says why a device, or another share of it, is left behind; nil if none is.
func (r *run) whyLeft(device int) error {
	for i, err := range r.left {
		if i == device || steps.SameBase(r.record.Devices[i], r.record.Devices[device]) {
			return err
		}
	}
	return nil
}

// forget deletes the record, after it has written the leftovers.
func (r *run) forget(ctx context.Context) error {
	leftovers := map[string]ledger.Record{}
	for i, d := range r.record.Devices {
		cause := r.left[i]
		if cause == nil {
			continue
		}
		address := d.Placement.GPU
		left, begun := leftovers[address]
		if !begun {
			left = r.leftoversOn(address)
		}
		left.Cause = causeOf(cause)
		left.Devices = append(slices.DeleteFunc(left.Devices, func(e ledger.Device) bool { return e.Key() == d.Key() }), d)
		leftovers[address] = left
	}
	for _, address := range slices.Sorted(maps.Keys(leftovers)) {
		left := leftovers[address]
		if err := r.Ledger.Put(left); err != nil {
			return err
		}
		klog.FromContext(ctx).Info(WhyLeft(left), "claim", left.Claim.String(), "claimUID", r.record.Claim.UID)
	}
	return r.Ledger.Delete(r.record.Claim.UID)
}

// leftoversOn returns the record of the claim's leftovers on a GPU. There are some already if the
// claim was allocated on it before, or if an earlier attempt of this release was interrupted.
func (r *run) leftoversOn(address string) ledger.Record {
	uid := ledger.LeftoverUID(ledger.ClaimOf(r.record.Claim.UID), gpu.NameOf(address))
	if left, ok := r.Ledger.Get(uid); ok {
		return left
	}
	left := r.record.Clone()
	left.Claim.UID = uid
	left.Released, left.State, left.Devices, left.Pods = true, ledger.Preparing, nil, nil
	return left
}

func causeOf(err error) string { return text.Cut(err.Error(), longestCause) }

// WhyLeft says what a released claim has left behind, why, and what to do.
func WhyLeft(r ledger.Record) string {
	return fmt.Sprintf("Claim %s: %s. This is retried, and no other claim gets the place until then; if it lasts, drain the node and reboot it",
		whatIsLeft(r), r.Cause)
}

func whatIsLeft(r ledger.Record) string {
	return fmt.Sprintf("%s was released, but %s could not be removed from the hardware", r.Claim, deviceNames(r))
}

// LeftInTheWay returns the devices of a GPU that cannot be prepared because of what released claims
// have left behind.
func (m *Manager) LeftInTheWay(g *gpu.GPU) []gpu.Obstacle {
	var all []gpu.Obstacle
	for _, left := range m.Ledger.List() {
		if !left.Released || left.Cause == "" { // a trial has no cause while it runs
			continue
		}
		reason := fmt.Sprintf("claim %s, which is retried", whatIsLeft(left))
		for _, d := range left.Devices {
			for _, p := range g.Placements {
				if d.Placement.GPU != g.PCIAddress || !g.Conflict(p, d.Placement) {
					continue
				}
				o := gpu.Obstacle{Placement: p.Base().Name(), Kind: gpu.ObstacleFailed, Reason: reason}
				if d.IsShare() && p.Base().Name() == d.Placement.Base().Name() {
					o.Placement, o.Alone = p.Name(), true // other shares of it may be had
				}
				if !slices.ContainsFunc(all, func(e gpu.Obstacle) bool { return e.Placement == o.Placement && (e.Alone == o.Alone || !e.Alone) }) {
					all = append(all, o)
				}
			}
		}
	}
	return all
}

// Leftovers returns the records of what a released claim has left behind.
func (m *Manager) Leftovers(claim ledger.ClaimRef) []ledger.Record {
	return slices.DeleteFunc(m.Ledger.List(), func(r ledger.Record) bool {
		return !r.Released || ledger.ClaimOf(r.Claim.UID) != claim.UID
	})
}

// FinishReleases removes what released claims have left behind. Without addresses, it handles all
// GPUs. Until ctx ends, it waits for claims that are being prepared or released on them. It reports
// each reason why that fails once.
func (m *Manager) FinishReleases(ctx context.Context, pciAddresses ...string) []Finding {
	var findings []Finding
	for _, r := range m.Ledger.List() {
		if !r.Released || len(pciAddresses) > 0 && !slices.ContainsFunc(gpusOf(r), func(gpuID string) bool { return slices.Contains(pciAddresses, gpuID) }) {
			continue
		}
		err := m.unprepare(ctx, r.Claim, func(now ledger.Record) bool { return now.Released }, m.finish)
		now, _ := m.Ledger.Get(r.Claim.UID)
		if err != nil && now.Cause != r.Cause {
			findings = append(findings, Finding{Reason: names.EventReleaseNotFinished, Message: WhyLeft(now)})
		}
	}
	return findings
}

// finish removes leftovers, and records why that fails.
func (m *Manager) finish(ctx context.Context, left ledger.Record) error {
	err := m.release(ctx, left)
	if err == nil || causeOf(err) == left.Cause {
		return err
	}
	left.Cause = causeOf(err)
	return errors.Join(err, m.Ledger.Put(left))
}
