package claim

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"k8s.io/klog/v2"

	"github.com/tranche-dev/tranche/api/v1alpha1"
	"github.com/tranche-dev/tranche/pkg/claim/ledger"
	"github.com/tranche-dev/tranche/pkg/claim/plan"
	"github.com/tranche-dev/tranche/pkg/gpu"
)

// withoutDriver tells whether an error means that a driver cannot be used now.
func withoutDriver(err error) bool {
	driver := (*gpu.DriverError)(nil)
	return errors.As(err, &driver)
}

// releaseOrPostpone releases a record as the kubelet asks for. If the driver of its GPUs
// cannot be used, what concerns the hardware is postponed until it can: the claim's
// containers have ended, and its pods must not wait for a driver that may only come
// back after they have left. The caller holds the locks of the GPUs.
func (m *Manager) releaseOrPostpone(ctx context.Context, held ledger.Record) error {
	err := m.release(ctx, held)
	if !withoutDriver(err) {
		return err
	}
	if failed := m.postpone(ctx, held); failed != nil {
		return errors.Join(err, failed)
	}
	klog.FromContext(ctx).Info("Released; what the claim has in the hardware is removed when the driver can be used again",
		"claim", held.Claim.String(), "claimUID", held.Claim.UID, "devices", deviceNames(held), "reason", err.Error())
	return nil
}

// postpone takes back what needs no driver, and writes down that the rest is to be
// removed. Until then the record keeps others from getting the devices.
func (m *Manager) postpone(ctx context.Context, held ledger.Record) error {
	if err := m.CDI.Remove(held.Claim.UID); err != nil {
		return err
	}
	_, sharers := m.others(held)
	r := &run{Manager: m, operation: "unprepare", record: held, sharers: sharers}
	for i, d := range held.Devices {
		if !d.IsShare() {
			continue
		}
		// Its daemon ends; how the GPU is set comes with the driver.
		if err := r.leave(ctx, i); err != nil && !withoutDriver(err) {
			return err
		}
	}
	later := held.Clone()
	later.State, later.Released = ledger.Preparing, true
	return m.Ledger.Put(later)
}

// FinishReleases removes what released claims left on GPUs that could not be reached. On
// GPUs that still cannot it changes nothing. Without addresses it means all GPUs. It
// waits until ctx ends for claims that are being prepared or released there.
func (m *Manager) FinishReleases(ctx context.Context, pciAddresses ...string) []Finding {
	var findings []Finding
	for _, r := range m.Ledger.List() {
		if !r.Released || len(pciAddresses) > 0 && !slices.ContainsFunc(gpusOf(r), func(gpuID string) bool { return slices.Contains(pciAddresses, gpuID) }) {
			continue
		}
		err := m.unprepare(ctx, r.Claim, func(now ledger.Record) bool { return now.Released }, m.release)
		if err != nil && !withoutDriver(err) && !errors.Is(err, gpu.ErrLost) {
			findings = append(findings, Finding{
				Reason:  v1alpha1.EventReleaseNotFinished,
				Message: fmt.Sprintf("claim %s (%s) was released while its GPUs could not be reached, and %s cannot be removed from the hardware now; this is tried again", r.Claim, r.Claim.UID, deviceNames(r)),
				Err:     err,
			})
		}
	}
	return findings
}

// preparedOnPaper tells whether a claim is prepared as far as that can be told without
// the driver. A kubelet that starts again asks for running pods too, and nothing of
// theirs has changed.
func preparedOnPaper(s plan.Situation) bool {
	return s.Held != nil && s.Held.State == ledger.Prepared && s.CDI && plan.SameDevices(*s.Held, s.Wanted)
}
