package claim

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/claim/ledger"
	"github.com/tranche-dev/tranche/pkg/claim/steps"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/lists"
)

// Finding is a problem that was found, and its repair.
type Finding struct {
	// Reason is a short CamelCase word, as events have it.
	Reason string
	// Message names the object, what was found and what was done.
	Message string
	// Err is why the repair failed, which is retried; nil: it succeeded.
	Err error
}

// GetClaim reads a claim from the API server; nil if it does not exist.
type GetClaim func(ctx context.Context, namespace, name string) (*resourceapi.ResourceClaim, error)

// Recover rebuilds the records of broken and missing ledger files from the copies in the CDI
// files. It is called once, before any claim is prepared.
//
// A CDI file is written after the record and removed before it. So if a CDI file has no record,
// the record was lost.
func (m *Manager) Recover(broken []ledger.Broken) []Finding {
	return append(m.recoverBroken(broken), m.recoverLost()...)
}

func (m *Manager) recoverBroken(broken []ledger.Broken) []Finding {
	var findings []Finding
	for _, b := range broken {
		f := Finding{
			Reason:  names.EventLedgerFileBroken,
			Message: fmt.Sprintf("the ledger file of claim %s was unreadable (%v) and lies now at %s; its record was rebuilt from the claim's CDI file", b.UID, b.Err, b.Path),
		}
		err := m.recoverOne(b.UID)
		if err != nil {
			f.Err = err
			f.Message = fmt.Sprintf("the ledger file of claim %s was unreadable (%v) and lies now at %s; its record could not be rebuilt, so a partition of the claim counts as foreign until the claim is prepared again", b.UID, b.Err, b.Path)
		}
		findings = append(findings, f)
	}
	return findings
}

func (m *Manager) recoverLost() []Finding {
	uids, err := m.CDI.List()
	if err != nil {
		return nil // Reconcile reports this
	}
	var findings []Finding
	for _, uid := range uids {
		if m.Ledger.Has(uid) {
			continue
		}
		// Reconcile removes a file that has no valid copy.
		if err := m.recoverOne(uid); err == nil {
			findings = append(findings, Finding{
				Reason:  names.EventRecordRebuilt,
				Message: fmt.Sprintf("the ledger had no record of claim %s; it was rebuilt from the claim's CDI file", uid),
			})
		}
	}
	return findings
}

func (m *Manager) recoverOne(uid types.UID) error {
	data, err := m.CDI.Record(uid)
	if err != nil {
		return err
	}
	record, err := ledger.Decode(data)
	if err != nil {
		return fmt.Errorf("the copy in the CDI file: %w", err)
	}
	if record.Claim.UID != uid {
		return fmt.Errorf("the copy in the CDI file is of claim %s", record.Claim.UID)
	}
	record.State = ledger.Prepared
	return m.Ledger.Put(record)
}

// Reconcile compares the ledger with the API server, the CDI folder and running daemons, and
// releases everything that no claim holds.
func (m *Manager) Reconcile(ctx context.Context, getClaim GetClaim) []Finding {
	findings := m.FinishReleases(ctx)
	findings = append(findings, m.releaseLeftovers(ctx, getClaim)...)
	findings = append(findings, m.reportUnusable()...)
	findings = append(findings, m.removeOrphanFiles(ctx)...)
	return append(findings, m.stopStrays(ctx)...)
}

// releaseLeftovers releases the records of claims that are gone or no longer allocated, and have
// no running containers: the kubelet will not release them. It updates the other records.
func (m *Manager) releaseLeftovers(ctx context.Context, getClaim GetClaim) []Finding {
	if err := m.Refresh(ctx); err != nil {
		return []Finding{{Reason: names.EventLedgerUnreadable, Message: "the ledger cannot be read", Err: err}}
	}
	var findings []Finding
	for _, r := range m.Ledger.List() {
		if r.Released {
			continue // FinishReleases handles it
		}
		claim, err := getClaim(ctx, r.Claim.Namespace, r.Claim.Name)
		if err != nil {
			klog.FromContext(ctx).Error(err, "Cannot read a claim, so its devices are not released", "claim", r.Claim.String(), "claimUID", r.Claim.UID)
			continue
		}
		if claim != nil && claim.UID == r.Claim.UID && stillAllocated(claim, r) {
			findings = append(findings, m.keepUp(ctx, claim, r)...)
			continue
		}
		if inUse := m.leftoverInUse(r); inUse != nil {
			findings = append(findings, *inUse)
			continue
		}
		findings = append(findings, Finding{
			Reason:  names.EventLeftoverReleased,
			Message: fmt.Sprintf("claim %s (%s) is gone or was given other devices, but still held %s; it is released", r.Claim, r.Claim.UID, deviceNames(r)),
			// While this waits for the GPU, the kubelet may prepare a new allocation
			// of the claim, which must not be released.
			Err: m.unprepare(ctx, r.Claim, func(now ledger.Record) bool { return steps.SameDevices(now, r) }, m.release),
		})
	}
	return findings
}

// stillAllocated reports whether a device of the record is still allocated to the claim. A claim
// may have been deallocated and allocated on another node.
func stillAllocated(claim *resourceapi.ResourceClaim, r ledger.Record) bool {
	if claim.Status.Allocation == nil {
		return false
	}
	for _, result := range claim.Status.Allocation.Devices.Results {
		held := func(d ledger.Device) bool {
			return d.Pool == result.Pool && d.Name == result.Device && d.ShareID == steps.ShareID(result)
		}
		if result.Driver == names.DriverName && slices.ContainsFunc(r.Devices, held) {
			return true
		}
	}
	return false
}

func deviceNames(r ledger.Record) string {
	return strings.Join(lists.Map(r.Devices, ledger.Device.Key), ", ")
}

// removeOrphanFiles removes CDI files of claims that are not in the ledger.
func (m *Manager) removeOrphanFiles(ctx context.Context) []Finding {
	uids, err := m.CDI.List()
	if err != nil {
		return []Finding{{Reason: names.EventCDIFilesUnreadable, Message: "the CDI files cannot be listed", Err: err}}
	}
	forgotten, err := m.Forgotten(ctx, uids)
	if err != nil {
		return []Finding{{Reason: names.EventLedgerUnreadable, Message: "the ledger cannot be read", Err: err}}
	}
	findings := make([]Finding, 0, len(forgotten))
	for _, uid := range forgotten {
		data, err := m.CDI.Record(uid)
		if unread := (*fs.PathError)(nil); errors.As(err, &unread) || err == nil && copyIsNewer(data) {
			continue // what cannot be read now may be a newer version's
		}
		if removed, err := m.removeOrphanFile(ctx, uid, data); removed || err != nil {
			findings = append(findings, Finding{
				Reason:  names.EventOrphanFileRemoved,
				Message: fmt.Sprintf("the CDI file of claim %s belonged to no record and is removed", uid),
				Err:     err,
			})
		}
	}
	return findings
}

// removeOrphanFile removes the CDI file of a claim that has no record. It locks the GPUs in the file's
// copy of the record, because the claim may be prepared again meanwhile.
func (m *Manager) removeOrphanFile(ctx context.Context, uid types.UID, data []byte) (removed bool, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, Budget, fmt.Errorf("not finished within %s, the limit for removing a CDI file", Budget))
	defer cancel()
	record, _ := ledger.Decode(data) // empty if the copy is broken
	unlock, err := m.lock(ctx, "reconcile", gpusOf(record))
	if err != nil {
		return false, err
	}
	defer unlock()
	if m.Ledger.Has(uid) {
		return false, nil
	}
	return true, m.CDI.Remove(uid)
}

// Forgotten returns the claims that have no record. It must be called after files of the claims
// were found: a record is written before anything else, by any process.
func (m *Manager) Forgotten(ctx context.Context, uids []types.UID) ([]types.UID, error) {
	if err := m.Refresh(ctx); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(uids, func(uid types.UID) bool {
		return m.Ledger.Has(uid)
	}), nil
}

// Foreign lists the partitions of a GPU that belong neither to a record nor to a profile.
func (m *Manager) Foreign(ctx context.Context, pciAddress string) ([]gpu.Partition, error) {
	foreign, _, err := m.Compare(ctx, pciAddress)
	return foreign, err
}

// Compare compares the ledger with a GPU. foreign are the partitions that belong neither to a
// record nor to a profile. missing are the devices that claims hold and the GPU does not have:
// somebody else removed them.
func (m *Manager) Compare(ctx context.Context, pciAddress string) (foreign []gpu.Partition, missing []ledger.Device, err error) {
	unlock, err := m.lock(ctx, "reconcile", []string{pciAddress})
	if err != nil {
		return nil, nil, err
	}
	defer unlock()
	if err := m.Ledger.CheckGPUs([]string{pciAddress}); err != nil {
		return nil, nil, err
	}
	live, err := m.present(ctx, pciAddress)
	if err != nil {
		return nil, nil, err
	}
	return m.foreign(live), m.missing(pciAddress, live), nil
}

// missing lists the devices that claims hold and that are not among the partitions of the GPU. A
// partition of a mode that exists but is incomplete is reported as an obstacle instead.
func (m *Manager) missing(gpuID string, live []gpu.Partition) []ledger.Device {
	incomplete := func(d ledger.Device) bool {
		return slices.ContainsFunc(live, func(p gpu.Partition) bool {
			return p.Is(d.Placement) && p.Type.FollowsMode() && !p.Complete
		})
	}
	var missing []ledger.Device
	for _, r := range m.Held([]string{gpuID}) {
		if r.State != ledger.Prepared {
			continue
		}
		for _, d := range r.Devices {
			if d.Placement.GPU == gpuID && !d.Admin && !steps.Exists(d, live) && !incomplete(d) {
				missing = append(missing, d)
			}
		}
	}
	return missing
}

// RemoveForeign removes a foreign partition that nobody uses. It fails with gpu.ErrInUse if the
// partition is in use, and does nothing if the partition is no longer foreign.
func (m *Manager) RemoveForeign(ctx context.Context, p gpu.Partition) error {
	ctx, cancel := context.WithTimeoutCause(ctx, Budget, fmt.Errorf("not finished within %s, the limit for removing a partition", Budget))
	defer cancel()
	unlock, err := m.lock(ctx, "reconcile", []string{p.GPU})
	if err != nil {
		return err
	}
	defer unlock()
	if err := m.Ledger.CheckGPUs([]string{p.GPU}); err != nil {
		return err
	}
	driver, err := m.Driver(p.GPU)
	if err != nil {
		return err
	}
	live, err := driver.Live(ctx, p.GPU)
	if err != nil || !slices.Contains(m.foreign(live), p) {
		return err
	}
	return driver.Destroy(ctx, p.Placement())
}

// foreign returns the partitions that belong neither to a record nor to a profile. The caller
// holds the GPU's lock.
func (m *Manager) foreign(live []gpu.Partition) []gpu.Partition {
	var records []ledger.Record
	for _, r := range m.Ledger.List() {
		if now := m.current(&r); now != nil {
			records = append(records, *now)
		}
	}
	return lists.Filter(live, func(p gpu.Partition) bool {
		return p.Type == gpu.TypeMIG && steps.RecordOf(p, records) == nil && !steps.IsStatic(m.Static, p)
	})
}

// reportUnusable reports records that cannot be used now.
func (m *Manager) reportUnusable() []Finding {
	var findings []Finding
	for _, n := range m.Ledger.Unusable() {
		reason := names.EventLedgerRecordNewer
		if n.Unreadable != nil {
			reason = names.EventLedgerUnreadable
		}
		findings = append(findings, Finding{
			Reason:  reason,
			Message: fmt.Sprintf("%v. Until then the claim is neither prepared nor released, and its GPUs are given to no other claim", &ledger.UnusableError{Unusable: n}),
		})
	}
	return findings
}

// copyIsNewer reports whether only a newer version can use the copy of a record in a CDI file.
// That version can rebuild a lost record from it.
func copyIsNewer(data []byte) bool {
	_, err := ledger.Decode(data)
	newer := (*ledger.UnusableError)(nil)
	return errors.As(err, &newer)
}
