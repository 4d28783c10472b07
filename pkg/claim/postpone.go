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

// withoutDriver tells whether an error says that a driver cannot be used now.
func withoutDriver(err error) bool {
	driver := (*gpu.DriverError)(nil)
	return errors.As(err, &driver)
}

// releaseOrPostpone releases a record for the kubelet. If the driver of its GPUs cannot be used,
// changes of the hardware are postponed: the claim's containers have ended, and its pods must
// not wait for a driver that may only come back after they have ended. The caller holds the
// locks of the GPUs.
func (m *Manager) releaseOrPostpone(ctx context.Context, held ledger.Record) error {
	err := m.release(ctx, held)
	if !withoutDriver(err) {
		return err
	}
	if failed := m.postpone(ctx, held); failed != nil {
		return errors.Join(err, failed)
	}
	klog.FromContext(ctx).Info("Released; the partitions of the claim are removed when the driver can be used again",
		"claim", held.Claim.String(), "claimUID", held.Claim.UID, "devices", deviceNames(held), "reason", err.Error())
	return nil
}

// postpone undoes what needs no driver, and records that the rest must be removed. Until then,
// the record keeps other claims from getting the devices.
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
		// This stops its daemon. The driver resets the settings of the GPU.
		if err := r.leave(ctx, i); err != nil && !withoutDriver(err) {
			return err
		}
	}
	later := held.Clone()
	later.State, later.Released = ledger.Preparing, true
	return m.Ledger.Put(later)
}

// FinishReleases removes what released claims left on GPUs that could not be reached then; it
// skips GPUs that still cannot be reached. Without addresses, it handles all GPUs. Until ctx
// ends, it waits for claims that are being prepared or released on them.
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
				Message: fmt.Sprintf("claim %s (%s) was released while its GPUs could not be reached, and %s cannot be removed from the hardware now; this is retried", r.Claim, r.Claim.UID, deviceNames(r)),
				Err:     err,
			})
		}
	}
	return findings
}

// preparedOnPaper tells whether a claim is prepared according to the ledger, without the driver.
// A kubelet that restarts prepares the claims of running pods again.
func preparedOnPaper(s plan.Situation) bool {
	return s.Held != nil && s.Held.State == ledger.Prepared && s.CDI && plan.SameDevices(*s.Held, s.Wanted)
}
